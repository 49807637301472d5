const rotate = (value, bits) => (value << bits) | (value >>> (32 - bits));
const mix = (block) => Math.imul(rotate(Math.imul(block, 0xcc9e2d51), 15), 0x1b873593);

/** MurmurHash3 x86 32-bit of some bytes. Suffixes use seed 0. */
export function murmur3(bytes, seed = 0) {
  let hash = seed | 0;
  const whole = bytes.length - (bytes.length % 4);
  for (let at = 0; at < whole; at += 4) {
    hash ^= mix(bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24));
    hash = (Math.imul(rotate(hash, 13), 5) + 0xe6546b64) | 0;
  }
  if (whole < bytes.length) {
    let block = 0;
    for (let at = bytes.length - 1; at >= whole; at--) block = (block << 8) | bytes[at];
    hash ^= mix(block);
  }
  hash ^= bytes.length;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
