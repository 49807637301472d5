"""MurmurHash3 x86 32-bit, the hash of pre-calculated suffixes."""

_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _mix(block: int) -> int:
    return _rotate(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def x86_32(data: bytes, seed: int = 0) -> int:
    """Hash bytes with a seed. Suffixes use seed 0."""
    value = seed
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        value ^= _mix(int.from_bytes(data[at : at + 4], "little"))
        value = (_rotate(value, 13) * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        value ^= _mix(int.from_bytes(data[whole:], "little"))
    value ^= len(data) & _MASK
    value ^= value >> 16
    value = value * 0x85EBCA6B & _MASK
    value ^= value >> 13
    value = value * 0xC2B2AE35 & _MASK
    return value ^ value >> 16
