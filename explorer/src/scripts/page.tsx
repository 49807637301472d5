export function ScriptsPage(_: any) { return <p>soon</p>; }
