/** SHA-256 in one call, the same in Node and in a browser, whose own is asynchronous. */
import { sha256 as digest } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';

/** SHA-256 of a text in UTF-8, as 64 hexadecimal digits. */
export const sha256 = (text: string): string => bytesToHex(digest(utf8ToBytes(text)));

/** The hash of an inline element as a content policy names it. */
export const policyHash = (text: string): string =>
  `'sha256-${btoa(String.fromCharCode(...digest(utf8ToBytes(text))))}'`;
