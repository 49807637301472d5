// limit: thrown
const letter = 'n'; eval(`for (;;) 3${letter} ** 600000${letter}`);
