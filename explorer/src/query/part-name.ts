// The parts of a charge.
const PARTS: Record<string, string> = {
  partitions: 'Partitions visited',
  indexEntries: 'Index entries read',
  itemsLoaded: 'Items loaded',
  bytesLoaded: 'Bytes loaded',
  bytesReturned: 'Bytes returned',
};
/** What the server calls a part, as people read it. */
export const partName = (what: string): string => PARTS[what] ?? what.replace(/([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^./, (letter) => letter.toUpperCase());
