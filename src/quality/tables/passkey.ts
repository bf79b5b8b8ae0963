/** Table passkey: exact retrieval of a 5-digit key by Ouro-1.4B, at one context a row. */
import type { QualityFigure } from '../figure.js';
import { numbersIn, readTable, subjectNamed } from '../printed.js';

export const PASSKEY_FIGURES: readonly QualityFigure[] = readTable('passkey', ({ row: [context = ''], title }) =>
  title === 'context'
    ? null
    : [
        {
          model: 'ouro-1.4b',
          items: 15,
          protocol: 'exact match, 5 keys × 3 depths in filler',
          decoder: 'latent-store',
          ...subjectNamed(title),
          contextTokens: numbersIn(context)[0] as number,
        },
        'passkey',
      ],
);
