export function ChangesPage(_: any) { return <p>soon</p>; }
