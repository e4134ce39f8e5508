// A player on the MCP SDKs for TypeScript, which gets its orders line by line: see `Player` in the tests.
//
// node typescript_client.mjs MODULES VERSION MODE http URL | MODULES VERSION MODE stdio COMMAND...
//
// MODULES is the folder node_modules, VERSION 1 (@modelcontextprotocol/sdk) or 2 (@modelcontextprotocol/client).

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [modules, version, mode, kind, ...where] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/${path}`).href);
const say = (facts) => process.stdout.write(JSON.stringify(facts) + "\n");

async function parts() {
  if (version === "1") {
    const folder = "sdk/dist/esm/client";
    const [{ Client }, { StreamableHTTPClientTransport }, { StdioClientTransport }] = await Promise.all(
      ["index.js", "streamableHttp.js", "stdio.js"].map((file) => load(`${folder}/${file}`)),
    );
    return { Client, StreamableHTTPClientTransport, StdioClientTransport, options: {} };
  }
  const [{ Client, StreamableHTTPClientTransport }, { StdioClientTransport }] = await Promise.all(
    ["index.mjs", "stdio.mjs"].map((file) => load(`client/dist/${file}`)),
  );
  const options = { versionNegotiation: { mode: mode === "auto" || mode === "legacy" ? mode : { pin: mode } } };
  return { Client, StreamableHTTPClientTransport, StdioClientTransport, options };
}

const { Client, StreamableHTTPClientTransport, StdioClientTransport, options } = await parts();
const client = new Client({ name: "player", version: "1" }, options);
const transport =
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(where[0]))
    : new StdioClientTransport({ command: where[0], args: where.slice(1), stderr: "inherit" });
await client.connect(transport);

const prompts = client.getServerCapabilities()?.prompts ? (await client.listPrompts()).prompts : [];
const prompt = prompts.length ? await client.getPrompt({ name: prompts[0].name }) : null;
const { tools } = await client.listTools();
say({
  tools: tools.map((tool) => tool.name),
  prompt: prompt && prompt.messages.map((message) => message.content),
  instructions: client.getInstructions() ?? null,
});
for await (const line of createInterface({ input: process.stdin })) {
  const [name, input] = JSON.parse(line);
  try {
    say(await client.callTool({ name, arguments: input }));
  } catch (error) {
    say({ failure: `${error.name}: ${error.message}` });
  }
}
await client.close();
