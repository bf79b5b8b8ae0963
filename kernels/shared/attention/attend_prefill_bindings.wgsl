// Bindings that both kernels of a prompt's attention have.
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<vec4u>;
@group(0) @binding(3) var<storage, read> values: array<vec4u>;
@group(0) @binding(4) var<storage, read_write> output: array<f32>;
@group(0) @binding(5) var<storage, read> spans: array<vec2u>;
@group(0) @binding(6) var<storage, read> branch_queries: array<f32>;
@group(0) @binding(7) var<storage, read> branch_keys: array<f32>;
