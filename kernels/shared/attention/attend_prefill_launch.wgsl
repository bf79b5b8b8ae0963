override WG: u32;           // threads of a workgroup
override WIDE: u32;         // threads that share a row: a power of two, at most a subgroup
override KEY_EACH: u32;     // units of a key row that a thread takes, 4 * KEY_EACH * UNIT_VECS at most MOST_VECS
override VALUE_EACH: u32;   // the same of a value row
override BRANCH_EACH: u32;  // components of a branch row that a thread takes, 0 without a branch

const LANES = 4u;
const MOST_VECS = 192u;
const MOST_BRANCH = 64u;
const LOWEST = -3.0e38;
