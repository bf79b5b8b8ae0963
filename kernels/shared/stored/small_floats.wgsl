// bf16 and FP8 E4M3 by their bits: to nearest, ties to even.

fn bf16(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return x; }
  return bitcast<f32>((b + 0x7fffu + ((b >> 16u) & 1u)) & 0xffff0000u);
}

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

// The code of NaN reads as 480: only a scale may be NaN (storage_residual.wgsl).
fn fp8_value(code: u32) -> f32 {
  let size = select(bitcast<f32>(((((code >> 3u) & 15u) + 120u) << 23u) | ((code & 7u) << 20u)),
      f32(code & 7u) / 512.0, (code & 0x78u) == 0u);
  return select(size, -size, (code & 0x80u) != 0u);
}

// Beyond the largest number, 448, it is that number.
fn fp8_code(x: f32) -> u32 {
  let sign = (bitcast<u32>(x) >> 24u) & 0x80u;
  let size = min(abs(x), 448.0);
  if (size < 0.015625) { return sign | u32(round(size * 512.0)); }
  let b = bitcast<u32>(size);
  return sign | (((b + 0x7ffffu + ((b >> 20u) & 1u)) >> 20u) - 960u);
}

// x / divisor of positive numbers. Division may be off by units of the last place, products of midpoints are not.
fn fp8_quotient(x: f32, divisor: f32) -> u32 {
  let code = min(fp8_code(x / divisor), 0x7eu);
  let odd = (code & 1u) == 1u;
  if (code > 0u) {
    let low = divisor * 0.5 * (fp8_value(code - 1u) + fp8_value(code));
    if (x < low || (x == low && odd)) { return code - 1u; }
  }
  let high = divisor * 0.5 * (fp8_value(code) + fp8_value(code + 1u));
  return min(select(code, code + 1u, x > high || (x == high && odd)), 0x7eu);
}
