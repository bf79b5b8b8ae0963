/** One printed figure, with its place and its question; models and codecs that figures have in common. */
import type { Codec, CodecKind } from '../../codecs/codec.js';
import type { QualityModel } from '../../quality/figure.js';
import type { Decoding, Expectation, PaperFigure, Subject, Unit } from '../types.js';

export const [OURO, OURO_26, HUGINN] = ['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b'] as const;
export const [KIB, MIB, GIB] = [2 ** 10, 2 ** 20, 2 ** 30];
export const FULL: Codec = { kind: 'full' };
export const FULL_DECODING: Decoding = { codec: FULL, path: 'full' };
export const lla = (rankK: number, rankV: number): Codec => ({ kind: 'lla', rankK, rankV });
export const latent2d = (rankK: number, rankV: number): Codec => ({ kind: 'lla-2d', rankK, rankV });
export const LLA_4X = lla(96, 160);
export const LLA_21X = lla(18, 30);
/** Columns of Table memory. */
export const CODECS: readonly (readonly [title: string, Codec])[] = [
  ['teacher', FULL],
  ['LLA 4×', LLA_4X],
  ['LLA 21.3×', LLA_21X],
];
export const DECODE_CONTEXT = 4096;

/** Units in which a whole number is meant as it stands: `4×` is not 4.3×, 32 sequences are not 31.6. */
const COUNTED: readonly Unit[] = ['ratio', 'bytes', 'count', 'tokens'];

/** The number at the start of a printed figure, and half a unit of its last digit. */
export function printed(text: string, unit: Unit): { value: number; precision: number } {
  const digits = /[0-9]+(?:\.([0-9]+))?/.exec(text);
  if (!digits) throw new Error(`no number in ${text}`);
  const whole = digits[1] === undefined && COUNTED.includes(unit) && !text.startsWith('~');
  return { value: Number(digits[0]), precision: whole ? 0 : 0.5 * 10 ** -(digits[1]?.length ?? 0) };
}

export interface Where {
  readonly section: string;
  readonly source: string;
}

/** What is printed, and how it is compared. */
type Value = Pick<PaperFigure, 'text' | 'unit' | 'expect' | 'value' | 'precision'>;

/** A number. @param scale of what is printed, in base units */
const number =
  (expect: Expectation) =>
  (text: string, unit: Unit, scale = 1): Value => {
    const { value, precision } = printed(text, unit);
    return { text, unit, expect, value: value * scale, precision: precision * scale };
  };
export const exact = number('exact');
export const interval = number('interval');
export const explained = number('explained');
export const notPredictable = number('not-predictable');

export const figure = (where: Where, id: string, quantity: string, value: Value, subject: Subject): PaperFigure => ({
  ...where,
  id,
  quantity,
  ...value,
  subject,
});

/** A claim in words. */
export const claim = (
  where: Where,
  id: string,
  quantity: string,
  text: string,
  subject: Subject,
  expect: Expectation = 'exact',
): PaperFigure => figure(where, id, quantity, { text, unit: 'text', expect, value: null, precision: 0 }, subject);

/** Codecs of the paper, in its order. */
export const CODEC_NAMES: Readonly<Partial<Record<CodecKind, string>>> = {
  full: 'teacher',
  lla: 'LLA',
  'lla-2d': 'LLA-2D',
  'mla-head': 'mla_head',
  cla: 'cla',
  'kv-quant': 'kv_quant',
  'final-loop': 'final-loop reuse',
};
export const MODEL_NAMES: Readonly<Record<QualityModel, string>> = {
  [OURO]: '1.4B',
  [OURO_26]: '2.6B',
  [HUGINN]: 'Huginn',
};
export const quantBits = (ratio: number): Codec => ({
  kind: 'kv-quant',
  bits: Math.round(16 / ratio) as 2 | 3 | 4 | 8,
});
