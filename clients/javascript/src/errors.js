/** A key that cannot be built, or an item whose existing key does not match. */
export class SyntheticKeyError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "SyntheticKeyError";
    this.code = code;
  }
}
