export function DatabasePage(_: any) { return <p>soon</p>; }
