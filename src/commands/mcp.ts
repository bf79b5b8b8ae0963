/** `lla-sim mcp`: the planner for programs that speak the Model Context Protocol, over standard input and output. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { VERSION } from '../version.js';
import type { Command } from './command.js';
import { callTool, inputSchemaOf, TOOLS } from './mcp-tools.js';

export const mcpCommand: Command = {
  options: {},
  examples: [['mcp', 'serves until standard input ends; a client starts it']],
  run,
};

/** Progress is said at most so often, milliseconds. */
const EVERY_MS = 500;

async function run(): Promise<ExitCode> {
  const server = new Server({ name: 'lla-sim', version: VERSION }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: TOOLS.map((tool) => ({
      name: tool.name,
      description: tool.description,
      inputSchema: inputSchemaOf(tool),
      annotations: { readOnlyHint: true, openWorldHint: false },
    })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal, sendNotification, _meta }) => {
    const progressToken = _meta?.progressToken;
    let said = 0;
    const progress = (share: number, message: string): boolean => {
      if (progressToken !== undefined && performance.now() - said >= EVERY_MS) {
        said = performance.now();
        const told = { progressToken, progress: share, total: 1, message };
        void sendNotification({ method: 'notifications/progress', params: told });
      }
      return signal.aborted;
    };
    try {
      return { content: [{ type: 'text', text: await callTool(params.name, params.arguments, progress) }] };
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      return { content: [{ type: 'text', text: `${error.message}; ${error.hint}` }], isError: true };
    }
  });
  const ended = new Promise<void>((resolve) => {
    process.stdin.once('end', resolve);
    process.stdin.once('close', resolve);
  });
  await server.connect(new StdioServerTransport());
  await ended;
  await server.close();
  return EXIT.ok;
}
