/** The first questions, as buttons: those that README asks. */
import type { Scenario } from '../schema/settings.js';

export const QUESTIONS: readonly { readonly title: string; readonly scenario: Scenario }[] = [
  { title: 'How many users does one H200 serve?', scenario: { device: 'h200', context: '4096' } },
  {
    title: 'Which batch for 50 ms a token, and at what price?',
    scenario: { device: 'h200', context: '4096', tpot: '50ms', usdPerHour: '3.5' },
  },
  { title: 'What do a million tokens need?', scenario: { device: 'h200', context: '1M' } },
  {
    title: 'How many H100 for 200 users?',
    scenario: { device: 'h100', context: '32k', users: '200', tpot: '50ms' },
  },
  {
    title: 'Which GPU is best for Ouro-2.6B?',
    scenario: { model: 'ouro-2.6b', device: 'h100,h200,b200', context: '8k' },
  },
];
