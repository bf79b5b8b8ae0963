/** The line that says how far a calibration is. */
import { expect, test, vi } from 'vitest';
import { secondsLeft } from '../../src/bench/calibrate/calibrate.js';
import { nothingMeasured } from '../../src/commands/calibrate.js';
import { formatDuration, ProgressLine } from '../../src/commands/output.js';
import { EXIT } from '../../src/errors.js';
import type { Calibration } from '../../src/schema/calibration.js';

test('percent and time left', () => {
  const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const line = Object.assign(new ProgressLine(true), { isShown: true });
  line.time(30, 90, 'attend f16: 3 points');
  line.time(10, 0, 'x');
  new ProgressLine(true).time(30, 90, 'with --quiet');
  expect(write.mock.calls.map(([text]) => text)).toEqual([
    '\r[#####...............] 25 %, 1 min 30 s left  attend f16: 3 points\u001b[K',
    expect.stringContaining('] 100 %, 0 s left'),
  ]);
  write.mockRestore();
  expect([0.4, 59.4, 59.6, 3600].map(formatDuration)).toEqual(['0 s', '59 s', '1 min 0 s', '60 min 0 s']);
});

test('time left is the budget’s, and none where nothing can be measured', () => {
  const track = (candidates: number, samples: number) =>
    ({ candidates: Array(candidates).fill({}), entry: { samples: Array(samples).fill({}) } }) as unknown as Parameters<
      typeof secondsLeft
    >[2][number];
  expect(secondsLeft(20, 60, [track(5, 0)])).toBe(40);
  expect(secondsLeft(20, 60, [track(0, 2)])).toBe(40);
  expect(secondsLeft(70, 60, [track(5, 1)])).toBe(0);
  expect(secondsLeft(20, 60, [track(0, 0)])).toBe(0);
});

test('a calibration without any point says why', () => {
  const kernels = [{ gaps: [] }, { gaps: [{ reason: 'too slow' }] }] as unknown as Calibration['kernels'];
  expect(nothingMeasured({ kernels }, false).message).toBe('nothing was measured: too slow');
  expect(nothingMeasured({ kernels: [] }, false).message).toBe('nothing was measured');
  expect(nothingMeasured({ kernels }, true)).toMatchObject({ exitCode: EXIT.interrupted });
});
