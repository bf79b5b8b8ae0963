// Sum over the WIDE threads of a row group.
fn row_sum(x: vec4f) -> vec4f {
  var sum = x;
  for (var step = 1u; step < WIDE; step *= 2u) { sum += subgroupShuffleXor(sum, step); }
  return sum;
}
