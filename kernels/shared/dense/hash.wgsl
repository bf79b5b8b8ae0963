// "lowbias32" by Chris Wellons: an integer mix with low bias (nullprogram.com/blog/2018/07/31). The same in TypeScript:
// src/numbers/hash.ts.
fn mix_bits(value: u32) -> u32 {
  var x = value;
  x = (x ^ (x >> 16u)) * 0x7feb352du;
  x = (x ^ (x >> 15u)) * 0x846ca68bu;
  return x ^ (x >> 16u);
}
