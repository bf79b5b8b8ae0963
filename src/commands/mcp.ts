/** `lla-sim mcp`: the planner for programs that speak the Model Context Protocol, over standard input and output. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { STDIO_DEFAULT_MAX_BUFFER_SIZE } from '@modelcontextprotocol/sdk/shared/stdio.js';
import {
  CallToolRequestSchema,
  ErrorCode,
  InitializeRequestSchema,
  isJSONRPCRequest,
  type JSONRPCMessage,
  ListToolsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { issueWords } from '../io/issues.js';
import { formatBytes } from '../numbers/units.js';
import { VERSION } from '../version.js';
import type { Command } from './command.js';
import { callTool, inputSchemaOf, TOOLS } from './mcp-tools.js';

export const command: Command = {
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
      const { text, isError } = await callTool(params.name, params.arguments, progress);
      return { content: [{ type: 'text', text }], ...(isError ? { isError } : {}) };
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      return { content: [{ type: 'text', text: `${error.message}; ${error.hint}` }], isError: true };
    }
  });
  const transport = new StdioServerTransport();
  const ended = new Promise<void>((resolve, reject) => {
    process.stdin.once('end', resolve);
    process.stdin.once('close', resolve);
    // It closes by itself only where a line is too long to read.
    transport.onclose = () =>
      reject(
        new UserError(
          `a line of standard input is longer than ${formatBytes(STDIO_DEFAULT_MAX_BUFFER_SIZE)}`,
          'write one message a line, and give a large model or trace as a file',
        ),
      );
  });
  await connect(server, transport);
  await ended;
  await server.close();
  return EXIT.ok;
}

/** Requests whose parameters are looked at before the library does, whose own words are a dump of the schema. */
const REQUESTS = {
  initialize: InitializeRequestSchema,
  'tools/list': ListToolsRequestSchema,
  'tools/call': CallToolRequestSchema,
};

/** Connects the server to standard input and output. What is no message, or has wrong parameters, is answered here. */
async function connect(server: Server, transport: StdioServerTransport): Promise<void> {
  const refuse = (id: string | number | null, code: ErrorCode, message: string): void =>
    // The type has no answer to what has no id; JSON-RPC has.
    void transport.send({ jsonrpc: '2.0', id, error: { code, message } } as JSONRPCMessage);
  transport.onerror = (error) => {
    if (error instanceof SyntaxError) refuse(null, ErrorCode.ParseError, 'the line is not valid JSON');
    else if ('issues' in error)
      refuse(
        null,
        ErrorCode.InvalidRequest,
        'the line is no message of JSON-RPC 2.0: write {"jsonrpc":"2.0","id":1,"method":"tools/list"}',
      );
  };
  await server.connect(transport);
  const take = transport.onmessage;
  transport.onmessage = (message) => {
    const wrong = isJSONRPCRequest(message) ? wrongParameters(message) : null;
    if (wrong !== null && 'id' in message) refuse(message.id ?? null, ErrorCode.InvalidParams, wrong);
    else take?.(message);
  };
}

/** What is wrong with a request's parameters, in a line; null where nothing is. */
function wrongParameters(request: { readonly method: string }): string | null {
  if (!Object.hasOwn(REQUESTS, request.method)) return null;
  const parsed = REQUESTS[request.method as keyof typeof REQUESTS].safeParse(request);
  return parsed.success ? null : `${request.method}: ${issueWords(parsed.error.issues[0], request)}`;
}
