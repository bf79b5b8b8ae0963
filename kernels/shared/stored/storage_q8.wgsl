// Cached rows of 8-bit codes with f16 scales: a unit is four words, 16 components.
const BITS = 8u;
#include "storage_quads.wgsl"
