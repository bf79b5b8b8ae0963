/** `lla-sim models`: the models and devices that have names, and all that is known of one model. */
import { fullScalars } from '../codecs/registry.js';
import { DEVICES, type DeviceSpec } from '../devices/catalogue.js';
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { layersTimesLoops, parameterCount } from '../geometry/geometry.js';
import { MODEL_TYPES } from '../geometry/hf-config.js';
import { PRESETS } from '../geometry/presets.js';
import { readModel } from '../plan/ask/on-disk.js';
import { modelCard, modelCardTable, type ModelCard } from '../report/text/model-card.js';
import { WIDTH } from '../report/text/plan-table.js';
import { columns, left, right, wrap, type Column } from '../report/text/text.js';
import { formatBytes, formatCount, formatDecimalBytes, formatTokens } from '../numbers/units.js';
import { OUTPUT, formatOption, toggle, type Args, type Command } from './command.js';
import { asJson, print } from './output.js';

export interface ModelsJson {
  readonly schema: 'lla-sim/models';
  readonly schemaVersion: 1;
  readonly models: readonly ModelCard['model'][];
}

export interface DevicesJson {
  readonly schema: 'lla-sim/devices';
  readonly schemaVersion: 1;
  readonly devices: readonly DeviceSpec[];
}

const FORMATS = ['table', 'json'] as const;

export const command: Command = {
  positional: {
    name: 'name',
    help: 'a model, or the path of its config.json: its shape, its cache, and every figure published for it',
  },
  options: { devices: toggle('list devices instead of models'), ...formatOption(FORMATS), ...OUTPUT },
  examples: [
    ['models', 'models that plan --model takes'],
    ['models ouro-1.4b', 'one of them, with every published figure by codec and task'],
    ['models --devices', 'devices that plan --device takes'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const devices = args.isSet('devices');
  const name = args.positional;
  if (name !== null && devices)
    throw new UserError('--devices lists devices and takes no model', 'leave one of the two out');
  const text = name === null ? listing(devices ? 'devices' : 'models', format) : await modelText(name, format);
  await print(text, args.output());
  return EXIT.ok;
}

/** All models or devices that have names. */
export function listing(of: 'models' | 'devices', format: (typeof FORMATS)[number]): string {
  const devices = of === 'devices';
  const table = devices
    ? columns(DEVICE_COLUMNS, DEVICES)
    : [
        ...columns(MODEL_COLUMNS, PRESETS),
        '',
        'lla-sim models NAME: one of them, with every published figure.',
        ...wrap(
          `Your own config.json works too, if its model_type is one of ${MODEL_TYPES.join(', ')}: lla-sim plan ` +
            '--model ./config.json --vram 80GB. A file that says of a loop what is not known here is refused by ' +
            'name.',
          WIDTH,
        ),
      ];
  const json: DevicesJson | ModelsJson = devices
    ? { schema: 'lla-sim/devices', schemaVersion: 1, devices: DEVICES }
    : {
        schema: 'lla-sim/models',
        schemaVersion: 1,
        models: PRESETS.map((g) => ({ ...g, parameters: parameterCount(g), kvBytesPerToken: 2 * fullScalars(g) })),
      };
  return format === 'json' ? asJson(json) : `${table.join('\n')}\n`;
}

/** All that is known of a model. @throws UserError for a name that is not known */
export async function modelText(name: string, format: (typeof FORMATS)[number]): Promise<string> {
  const card = modelCard(await readModel(name));
  return format === 'json' ? asJson(card) : modelCardTable(card, WIDTH);
}

const MODEL_COLUMNS: readonly Column<(typeof PRESETS)[number]>[] = [
  left('model', (g) => g.name),
  left('layers × loops', layersTimesLoops),
  left('heads/KV × width', (g) => `${g.heads}/${g.kvHeads} × ${g.headDim}`),
  right('hidden', (g) => String(g.hidden)),
  right('MLP', (g) => String(g.mlpHidden)),
  right('vocabulary', (g) => String(g.vocab)),
  right('parameters', (g) => `${(parameterCount(g) / 1e9).toFixed(2)} B`),
  right('KV/token', (g) => formatBytes(2 * fullScalars(g))),
  right('positions', (g) => formatTokens(g.maxPositions)),
];

const DEVICE_COLUMNS: readonly Column<(typeof DEVICES)[number]>[] = [
  left('device', (d) => d.id),
  left('name', (d) => d.name),
  right('memory', (d) => formatDecimalBytes(d.vramBytes)),
  right('driver', (d) => (d.driverBytes === null ? '–' : formatBytes(d.driverBytes))),
  right('bandwidth', (d) => `${formatDecimalBytes(d.memoryBytesPerSecond)}/s`),
  right('f32', (d) => `${formatCount(d.f32FlopsPerSecond)}FLOP/s`),
  right('matrix f16', (d) => `${formatCount(d.matrixFlopsPerSecond)}FLOP/s`),
];
