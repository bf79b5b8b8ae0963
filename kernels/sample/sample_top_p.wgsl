// Sampling from the nucleus (Holtzman et al., arXiv 1904.09751, section 3.1): of the probabilities softmax(x /
// temperature), the least set of likeliest tokens whose sum is at least top_p; tokens as likely as the last one belong
// to it, too. A token is drawn from it: the first, in order of tokens, at which the running sum exceeds u times the sum
// of the nucleus.
//
// u depends on the seed, the row's stream and its counter only, so a sequence draws the same whatever else is in the
// batch. A row with a NaN or +infinity among its logits gives NONE, and so does one that is masked from end to end. One
// workgroup a row.
// Bindings: 0 params, 1 logits [row][vocab] f32 as bits, 2 draws [row] (stream, counter), 3 tokens [row] u32.
// Run: lla-sim bench --kernel sample
#include "sample_common.wgsl"

struct Params { vocab: u32, seed: u32, sharpness: f32, top_p: f32 }   // sharpness: log2(e) / temperature
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;
@group(0) @binding(2) var<storage, read> draws: array<vec2u>;
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;

const REDUCERS = 16u;
var<workgroup> shares: array<vec3f, WG>;
var<workgroup> tops: array<f32, WG>;
var<workgroup> broken: atomic<u32>;

#include "hash.wgsl"

// Orders floats as unsigned integers; -0 and 0, which are as likely as each other, are one.
fn key_of(bits: u32) -> u32 { return select(bits | 0x80000000u, ~bits, bits > 0x80000000u); }

fn weight(bits: u32, top: f32) -> f32 { return exp2(max((bitcast<f32>(bits) - top) * params.sharpness, -200.0)); }

// Sum over the workgroup, in an order that does not change.
fn total(l: u32, value: vec3f) -> vec3f {
  workgroupBarrier();
  shares[l] = value;
  workgroupBarrier();
  if (l < REDUCERS) {
    var sum = vec3f(0.0);
    for (var i = l; i < WG; i += REDUCERS) { sum += shares[i]; }
    shares[l] = sum;
  }
  workgroupBarrier();
  var sum = vec3f(0.0);
  for (var i = 0u; i < REDUCERS; i++) { sum += shares[i]; }
  return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let base = group_id.x * params.vocab;
  var top = -3.0e38;
  var bad = false;
  for (var i = l; i < params.vocab; i += WG) {
    let bits = logits[base + i];
    bad = bad || is_nan(bits) || bits == 0x7f800000u;
    top = max(top, bitcast<f32>(bits));
  }
  if (bad) { atomicStore(&broken, 1u); }
  tops[l] = top;
  workgroupBarrier();
  for (var i = 0u; i < WG; i++) { top = max(top, tops[i]); }

  // The largest key such that the tokens at or above it reach top_p: two bits of it at a time, from the highest.
  var sum = 0.0;
  for (var i = l; i < params.vocab; i += WG) { sum += weight(logits[base + i], top); }
  let wanted = params.top_p * total(l, vec3f(sum)).x;
  var threshold = 0u;
  for (var digit = 0u; digit < 16u; digit++) {
    let step = 1u << (30u - 2u * digit);
    var above = vec3f(0.0);
    for (var i = l; i < params.vocab; i += WG) {
      let bits = logits[base + i];
      let key = key_of(bits);
      above += select(vec3f(0.0), vec3f(weight(bits, top)),
          vec3u(key) >= vec3u(threshold + step, threshold + 2u * step, threshold + 3u * step));
    }
    let reached = total(l, above) >= vec3f(wanted);
    threshold += step * select(select(select(0u, 1u, reached.x), 2u, reached.y), 3u, reached.z);
  }
  if (params.top_p >= 1.0) { threshold = 0u; }

  // Each thread takes a run of tokens, so that the order of tokens is that of threads.
  let run = (params.vocab + WG - 1u) / WG;
  let first = l * run;
  let end = min(params.vocab, first + run);
  var own = 0.0;
  for (var i = first; i < end; i++) {
    let bits = logits[base + i];
    if (key_of(bits) >= threshold) { own += weight(bits, top); }
  }
  workgroupBarrier();
  tops[l] = own;
  workgroupBarrier();
  var before = 0.0;
  var nucleus = 0.0;
  for (var i = 0u; i < WG; i++) {
    if (i == l) { before = nucleus; }
    nucleus += tops[i];
  }
  // 23 bits: u times a sum is then less than the sum, rounded as well.
  let draw = draws[group_id.x];
  let u = f32(mix_bits(draw.y ^ mix_bits(draw.x ^ mix_bits(params.seed))) >> 9u) * 0x1p-23;
  let goal = u * nucleus;
  if (before <= goal && goal < before + own) {
    var token = NONE;
    var running = 0.0;
    for (var i = first; i < end; i++) {
      let bits = logits[base + i];
      if (key_of(bits) < threshold) { continue; }
      running += weight(bits, top);
      token = i;
      if (before + running > goal) { break; }
    }
    tokens[group_id.x] = token;
  }
  storageBarrier();
  workgroupBarrier();
  if (l == 0u && (atomicLoad(&broken) != 0u || nucleus == 0.0)) { tokens[group_id.x] = NONE; }
}
