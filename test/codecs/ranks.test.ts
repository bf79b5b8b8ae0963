/** From a ratio as people write it to ranks. */
import { describe, expect, it } from 'vitest';
import { exactRatio, ranksForRatio, ratioLabel, refuseRanks } from '../../src/codecs/ranks.js';
import { HUGINN, OURO } from '../contract/geometries.js';

describe('ratios', () => {
  it.each([
    [1.33, 4 / 3],
    [2.67, 8 / 3],
    [5.33, 16 / 3],
    [5.3, 16 / 3],
    [10.67, 32 / 3],
    [14.2, 128 / 9],
    [14.22, 128 / 9],
    [21.33, 64 / 3],
    [21.3, 64 / 3],
    [4, 4],
    [3.2, 3.2],
    [5.5, 5.5],
    [1, 1],
  ])('%d means %d', (written, exact) => {
    expect(exactRatio(written)).toBe(exact);
  });
  it.each([
    [4, '4'],
    [16 / 3, '5.33'],
    [64 / 3, '21.33'],
    [128, '128'],
    [170.67, '171'],
  ])('%d is printed %s', (ratio, text) => {
    expect(ratioLabel(ratio)).toBe(text);
  });
});

describe('ranks', () => {
  it('split 3:5 on Ouro and 1:2 on many loops', () => {
    expect(ranksForRatio(OURO, 1024, 4)).toEqual({ rankK: 96, rankV: 160 });
    expect(ranksForRatio(HUGINN, 6144, 16)).toEqual({ rankK: 128, rankV: 256 });
  });
  it('15.5× is a sum of 66, which has no whole 3:5 split: the nearest is taken', () => {
    expect(ranksForRatio(OURO, 1024, 15.5)).toEqual({ rankK: 25, rankV: 41 });
  });
  it('say why there are none', () => {
    expect(ranksForRatio(OURO, 1024, 1000)).toMatch(/fewer than two/);
    expect(refuseRanks(undefined, 8, 512, 'T·d')).toMatch(/rank K/);
    expect(refuseRanks(8, 513, 512, 'T·d')).toMatch(/rank V 513 exceeds T·d = 512/);
    expect(refuseRanks(512, 512, 512, 'T·d')).toBeUndefined();
  });
  it('add up to what the ratio leaves', () => {
    for (const ratio of [1.25, 1.5, 3, 7.7, 100]) {
      const ranks = ranksForRatio(OURO, 1024, ratio);
      expect(typeof ranks === 'string' ? NaN : ranks.rankK + ranks.rankV).toBe(Math.round(1024 / ratio));
    }
  });
});
