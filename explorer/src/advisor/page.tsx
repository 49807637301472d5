export function AdvisorPage(_: any) { return <p>soon</p>; }
