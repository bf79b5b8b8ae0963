// Pairs of components of 8-bit codes.
#include "pairs_quads.wgsl"
