/**
 * The cells of the paper's tables by LaTeX label, as printed: a line a row, the first one its titles. Written by
 * scripts/extract-tables.mjs from the TeX of Looped Latent Attention (O'Neill, Reid); not edited by hand.
 */
export const PAPER_TABLES = {
  tier4: `
Model | (r_k,r_v) | GSM8K strict | codec train KL
teacher | n/a | 0.820 | n/a
LLA 4.00× | (96,160) | 0.590 | 0.0160
LLA 3.20× | (120,200) | 0.575 | 0.0153
LLA 2.67× | (144,240) | 0.575 | 0.0157
LLA 2.00× | (192,320) | 0.750 | 0.0155
LLA 1.60× | (240,400) | 0.755 | 0.0070
LLA 1.33× | (288,480) | 0.795 | 0.0035`,
  broadsuite: `
Model | GSM8K | HumanEval b/p | MBPP b/p | MATH-500 | BBH | MMLU-Pro
Ouro teacher (1×) | 0.794 | 0.707 / 0.671 | 0.720 / 0.595 | 0.74 | 0.708 | 0.481
LLA 1.33× | 0.795 | 0.756 / 0.713 | 0.725 / 0.606 | 0.70 | 0.705 | 0.467
LLA 1.60× | 0.755 | 0.726 / 0.689 | 0.733 / 0.624 | 0.67 | 0.695 | 0.475
LLA 2.00× | 0.750 | 0.744 / 0.695 | 0.733 / 0.603 | 0.63 | 0.677 | 0.469
LLA 2.67× | 0.575 | 0.543 / 0.488 | 0.672 / 0.566 | 0.54 | 0.578 | 0.402
LLA 3.20× | 0.575 | 0.591 / 0.537 | 0.646 / 0.537 | 0.72 | 0.495 | 0.399
LLA 4.00× | 0.590 | 0.610 / 0.561 | 0.616 / 0.513 | 0.52 | 0.527 | 0.416`,
  isocache: `
Method | ρ | train-KL | GSM8K | MC-avg | MMLU
teacher | 1× | n/a | 0.794 | 0.646 | 0.682
final-loop reuse | 4× | n/a | 0.000 | 0.443 | 0.537
LLA (loop) | 4× | 0.059 | 0.800 | 0.640 | 0.672
mla_head (head) | 4× | 0.122 | 0.522 | 0.585 | 0.657
cla (layer) | 4× | 0.267 | 0.660 | 0.597 | 0.666
kv_quant (precision) | 4× | n/a | 0.702 | 0.645 | 0.672
LLA (loop) | 5.33× | 0.062 | 0.752 | 0.640 | 0.674
mla_head | 5.33× | 0.123 | 0.180 | 0.576 | 0.640
LLA-2D (loop×head) | 5.33× | 0.078 | 0.760 | 0.628 | 0.674
kv_quant (precision) | 5.33× | n/a | 0.122 | 0.621 | 0.607
LLA (loop) | 21.33× | 0.128 | 0.740 | 0.622 | 0.668
mla_head | 21.33× | 0.128 | 0.680 | 0.613 | 0.633
LLA-2D (loop×head) | 21.33× | 0.097 | 0.723 | 0.624 | 0.670`,
  scale: `
ρ | LLA (loop) | mla_head | LLA-2D | kv_quant
GSM8K EM; teacher ≈ 0.83
4× | 0.834 | 0.585 | 0.66 | 0.814
5.33× | 0.817 | 0.772 | 0.74 | 0.351
10.67× | 0.821 | 0.775 | 0.82 | n/a
train-KL
4× | 0.057 | 0.150 | 0.192 | n/a
5.33× | 0.056 | 0.155 | 0.165 | n/a
10.67× | 0.070 | 0.121 | 0.110 | n/a`,
  onpolicy: `
ρ | off-policy | on-policy | Δ | off no-ans | on no-ans
teacher (1×) | 0.740 | n/a | n/a | 0.020 | n/a
3.2× | 0.460 | 0.700 | +0.24 | 0.21 | 0.06
4× | 0.430 | 0.660 | +0.23 | 0.15 | 0.03
5.33× | 0.530 | 0.690 | +0.16 | 0.12 | 0.03
10.67× | 0.650 | 0.690 | +0.04 | 0.09 | 0.07
21.33× | 0.660 | 0.620 | -0.04 | 0.11 | 0.05`,
  ablations: `
Ablation | Variant | held-out KL
init prior | SVD (ours) | 0.105
init prior | t=1 SVD | 0.128
init prior | random | 0.771
rank split | r_k<r_v (96/160) | 0.105
rank split | shared rank (128/128) | 0.129
loss | KL +λ_attn=0.5 | 0.105
loss | KL only | 0.110`,
  huginn: `
ρ | r_k/r_v | SVD KL | SVD top-1 | distill KL | best top-1 | MC-avg
teacher | n/a | n/a | n/a | n/a | n/a | 0.523
16× | 128/256 | 0.005 | 0.970 | n/a | 0.970 | 0.523
32× | 64/128 | 0.010 | 0.954 | n/a | 0.954 | 0.525
64× | 32/64 | 0.197 | 0.799 | 0.145 | 0.834 | 0.486
128× | 16/32 | 0.763 | 0.620 | 0.177 | 0.812 | 0.473`,
  memory: `
Quantity | teacher | LLA 4× | LLA 21.3×
KV / token, 1.4B / 2.6B | 768 / 1536 KiB | 192 / 384 KiB | 36 / 72 KiB
KV at 1M context, 1.4B | 768 GiB | 192 GiB | 36 GiB
max batch at 4k, 1.4B | 32 | 128 | 768
max batch at 4k, 2.6B | 16 | 64 | n/a
decode latency, fast path | 63.6 ms/tok | 74.1 ms/tok | n/a
peak decode throughput, capacity path | 748 tok/s | n/a | 108 tok/s`,
  evict: `
Method (260-token eviction budget) | GSM8K strict
eviction alone (kv_quant-8, sequence axis) | 0.510
LLA 4× + eviction (loop × sequence) | 0.520`,
  passkey: `
context | teacher | LLA 4× | LLA 5.33× | LLA 10.67× | LLA 21.33×
2,048 | 1.00 | 1.00 | 1.00 | 1.00 | 0.00
4,096 | 1.00 | 1.00 | 1.00 | 1.00 | 0.00
8,192 | 1.00 | 1.00 | 1.00 | 1.00 | 0.20
16,384 | 1.00 | 1.00 | 1.00 | 1.00 | 0.07
32,768 | 1.00 | 1.00 | 1.00 | 0.80 | 0.20
65,536 | 1.00 | 0.87 | 1.00 | 0.73 | 0.00`,
  scale_mc: `
Method | ρ | ARC-e | ARC-c | HSwag | WGr | C-QA | MMLU | PIQA | OBQA | Avg
teacher | 1× | 0.833 | 0.541 | 0.568 | 0.684 | 0.752 | 0.750 | 0.785 | 0.310 | 0.653
LLA | 4× | 0.818 | 0.521 | 0.557 | 0.676 | 0.754 | 0.749 | 0.782 | 0.302 | 0.645
LLA | 5.33× | 0.818 | 0.526 | 0.557 | 0.691 | 0.746 | 0.748 | 0.783 | 0.300 | 0.646
LLA | 10.67× | 0.813 | 0.526 | 0.552 | 0.676 | 0.741 | 0.745 | 0.780 | 0.288 | 0.640
mla_head | 4× | 0.733 | 0.460 | 0.494 | 0.681 | 0.723 | 0.740 | 0.729 | 0.234 | 0.599
mla_head | 5.33× | 0.751 | 0.474 | 0.504 | 0.660 | 0.731 | 0.747 | 0.739 | 0.244 | 0.606
mla_head | 10.67× | 0.730 | 0.461 | 0.498 | 0.668 | 0.726 | 0.747 | 0.725 | 0.256 | 0.601
LLA-2D | 4× | 0.738 | 0.463 | 0.513 | 0.661 | 0.753 | 0.741 | 0.742 | 0.242 | 0.607
LLA-2D | 5.33× | 0.753 | 0.477 | 0.520 | 0.664 | 0.740 | 0.740 | 0.760 | 0.236 | 0.611
LLA-2D | 10.67× | 0.786 | 0.512 | 0.539 | 0.672 | 0.745 | 0.742 | 0.761 | 0.294 | 0.631
cla | 4× | 0.756 | 0.484 | 0.518 | 0.676 | 0.647 | 0.725 | 0.750 | 0.260 | 0.602
cla | 6× | 0.769 | 0.493 | 0.505 | 0.672 | 0.640 | 0.692 | 0.739 | 0.254 | 0.596
cla | 12× | 0.732 | 0.468 | 0.484 | 0.669 | 0.595 | 0.684 | 0.717 | 0.250 | 0.575
kv_quant | 4× | 0.832 | 0.530 | 0.565 | 0.677 | 0.738 | 0.747 | 0.782 | 0.292 | 0.645
kv_quant | 5.33× | 0.816 | 0.519 | 0.550 | 0.663 | 0.712 | 0.719 | 0.777 | 0.292 | 0.631`,
  retention: `
Model | GSM8K | HE b | HE p | MBPP b | MBPP p | MATH-500 | BBH | MMLU-Pro
Ouro teacher (1×) | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00
LLA 1.33× | 1.00 | 1.07 | 1.06 | 1.01 | 1.02 | 0.95 | 1.00 | 0.97
LLA 1.60× | 0.95 | 1.03 | 1.03 | 1.02 | 1.05 | 0.91 | 0.98 | 0.99
LLA 2.00× | 0.94 | 1.05 | 1.04 | 1.02 | 1.01 | 0.85 | 0.96 | 0.98
LLA 2.67× | 0.72 | 0.77 | 0.73 | 0.93 | 0.95 | 0.73 | 0.82 | 0.84
LLA 3.20× | 0.72 | 0.84 | 0.80 | 0.90 | 0.90 | 0.97 | 0.70 | 0.83
LLA 4.00× | 0.74 | 0.86 | 0.84 | 0.86 | 0.86 | 0.70 | 0.74 | 0.86`,
  absorbed_latency: `
context L | teacher (ms/tok) | absorbed (ms/tok) | vs. reconstruct-then-attend | vs. teacher
32,768 | 0.66 | 1.19 | 1.22× | 0.56×
131,072 | 2.29 | 2.32 | 2.17× | 0.99×
262,144 | 4.46 | 4.25 | 2.30× | 1.05×`,
  decoupled_char: `
configuration | reconstruction KL
full-RoPE reconstruction (reference) | 0.059
decoupled-RoPE, no query adapter | 0.55
decoupled-RoPE + query adapter | 0.34
decoupled-RoPE + query adapter, extended training | 0.30`,
} as const;
