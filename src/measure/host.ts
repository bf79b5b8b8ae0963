/// <reference lib="dom" />
/** The browser and the system that a measurement was made in: what a browser tells every page, and no more. */
import { printable } from '../errors.js';
import type { Calibration } from '../schema/calibration.js';

/** Chromium's own description, which the types of the standard lack. */
interface Brands {
  readonly brands: readonly { readonly brand: string; readonly version: string }[];
  readonly platform: string;
}

const GIB = 2 ** 30;

export function browserOf(userAgent: string, brands?: Brands): { name: string; version: string } {
  const own =
    brands?.brands.find(({ brand }) => !/not.?a.?brand|^chromium$/i.test(brand)) ??
    brands?.brands.find(({ brand }) => brand === 'Chromium');
  if (own) return { name: words(own.brand), version: words(own.version) };
  for (const [name, pattern] of [
    ['Firefox', /Firefox\/([\d.]+)/],
    ['Edge', /Edg\/([\d.]+)/],
    ['Chrome', /Chrome\/([\d.]+)/],
    ['Safari', /Version\/([\d.]+).*Safari/],
  ] as const) {
    const version = pattern.exec(userAgent)?.[1];
    if (version !== undefined) return { name, version };
  }
  return { name: 'unknown', version: 'unknown' };
}

export function systemOf(userAgent: string, brands?: Brands): string {
  if (brands?.platform) return words(brands.platform);
  const known = [
    ['Android', /Android/],
    ['iOS', /iPhone|iPad/],
    ['macOS', /Mac OS X/],
    ['Windows', /Windows/],
    ['Linux', /Linux/],
  ] as const;
  return known.find(([, pattern]) => pattern.test(userAgent))?.[0] ?? 'unknown';
}

const words = (text: string): string => printable(text).slice(0, 100);

export function describeBrowser(): Calibration['host'] {
  const { userAgent, hardwareConcurrency, userAgentData, deviceMemory } = navigator as Navigator & {
    readonly userAgentData?: Brands;
    readonly deviceMemory?: number;
  };
  return {
    os: systemOf(userAgent, userAgentData),
    arch: 'unknown',
    cpu: 'unknown',
    cores: Math.max(1, hardwareConcurrency || 1),
    memoryBytes: deviceMemory === undefined ? null : Math.max(2 ** 20, deviceMemory * GIB),
    browser: browserOf(userAgent, userAgentData),
  };
}
