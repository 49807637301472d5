export function SettingsPage(_: any) { return <p>soon</p>; }
