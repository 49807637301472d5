// The parts of a charge.
const PARTS: Record<string, string> = {
  partitions: 'Partitions visited',
  indexEntries: 'Index entries read',
  itemsLoaded: 'Items loaded',
  bytesLoaded: 'Bytes loaded',
  bytesReturned: 'Bytes returned',
};
/** The display name of a charge component. */
export const partName = (what: string): string => PARTS[what] ?? what.replace(/([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^./, (letter) => letter.toUpperCase());
