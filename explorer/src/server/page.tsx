export function ServerPage(_: any) { return <p>soon</p>; }
