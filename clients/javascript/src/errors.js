/** A key that cannot be made, or an item that cannot have the key it carries. */
export class SyntheticKeyError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "SyntheticKeyError";
    this.code = code;
  }
}
