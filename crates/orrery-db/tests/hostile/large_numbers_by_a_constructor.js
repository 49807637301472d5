// limit: thrown
const letter = 'n', made = Object.getPrototypeOf(function* () {}).constructor;
for (const _ of made(`for (;;) 3${letter} ** 600000${letter}`)()) {}
