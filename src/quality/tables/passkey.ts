/**
 * Table passkey: exact retrieval of a 5-digit key by Ouro-1.4B, and what the text alone says about retrieval and paths.
 */
import { type Common, type QualityFigure, figure } from '../figure.js';

const PASSKEY = {
  model: 'ouro-1.4b',
  source: 'Table passkey',
  items: 15,
  protocol: 'exact match, 5 keys × 3 depths in filler, latent-store decoder with two-pass prefill',
} as const;
const COLUMNS: readonly (string | null)[] = [null, '4', '5.33', '10.67', '21.33'];
const ROWS: readonly (readonly [contextTokens: number, ...values: number[]])[] = [
  [2048, 1, 1, 1, 1, 0],
  [4096, 1, 1, 1, 1, 0],
  [8192, 1, 1, 1, 1, 0.2],
  [16_384, 1, 1, 1, 1, 0.07],
  [32_768, 1, 1, 1, 0.8, 0.2],
  [65_536, 1, 0.87, 1, 0.73, 0],
];

const TABLE = ROWS.flatMap(([contextTokens, ...values]) =>
  COLUMNS.map((ratioLabel, i) =>
    figure(
      { ...PASSKEY, contextTokens, ...(ratioLabel === null ? {} : { codec: 'lla' as const, ratioLabel }) },
      'passkey',
      values[i] as number,
    ),
  ),
);

const LENGTHS = {
  model: 'ouro-1.4b',
  codec: 'lla',
  source: 'text, Section onpolicy',
  items: 15,
  protocol: 'longest context with passkey retrieval of at least 0.9, as stated',
} as const;
const ADAPTED: Common = {
  model: 'ouro-1.4b',
  codec: 'lla',
  ratioLabel: '4',
  pathClass: 'absorbed',
  source: 'caption, Table decoupled_char',
  protocol: 'post-hoc decoupled RoPE, frozen model',
};
const FINAL_LOOP = {
  model: 'ouro-1.4b',
  codec: 'final-loop',
  ratioLabel: '4',
  source: 'text, Section experiments',
  protocol: 'relative error of the reconstruction',
} as const;

/** Numbers that stand in the text and in no table. */
const TEXT: readonly QualityFigure[] = [
  figure({ ...LENGTHS, ratioLabel: '4' }, 'reliable-retrieval', 65_536),
  figure({ ...LENGTHS, ratioLabel: '5.33' }, 'reliable-retrieval', 65_536),
  figure({ ...LENGTHS, ratioLabel: '10.67' }, 'reliable-retrieval', 16_384),
  figure({ ...LENGTHS, ratioLabel: '14.2' }, 'reliable-retrieval', 8192),
  figure(
    {
      ...LENGTHS,
      model: 'ouro-2.6b',
      ratioLabel: '10.67',
      protocol: 'Ouro-2.6B-Thinking, perfect retrieval up to this context; its 64k cell ran out of memory in prefill',
    },
    'reliable-retrieval',
    32_768,
  ),
  figure(
    {
      ...LENGTHS,
      model: 'ouro-2.6b',
      ratioLabel: '10.67',
      contextTokens: 32_768,
      protocol: 'Ouro-2.6B-Thinking, "perfect retrieval to 32k"',
    },
    'passkey',
    1,
  ),
  figure({ ...ADAPTED, variant: 'query adapter' }, 'top-1', 0.84),
  figure({ ...ADAPTED, variant: 'query adapter, extended training' }, 'top-1', 0.88),
  figure({ ...ADAPTED, pathClass: 'full-rope', protocol: 'full-RoPE reconstruction, "~0.95"' }, 'top-1', 0.95),
  figure({ ...ADAPTED, variant: 'query adapter, d_rope = 32' }, 'reconstruction-kl', 1.04),
  figure(FINAL_LOOP, 'key-error', 0.35),
  figure(FINAL_LOOP, 'value-error', 0.6),
];

export const PASSKEY_FIGURES: readonly QualityFigure[] = [...TABLE, ...TEXT];
