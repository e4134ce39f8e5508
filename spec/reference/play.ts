// The module `play`: an MCP endpoint for each episode, which shows an agent its tools, its prompt and its observations.
import { randomBytes, randomUUID } from "node:crypto";
import { SUBMIT, type Control } from "./control.ts";
import { limits, type Episode, type StepResult } from "./episodes.ts";
import type { Endpoint } from "./mcp.ts";
import { Invalid, checkGiven, fields } from "./schema.ts";
import { Refusal, isObject, type Json, type JsonObject } from "./wire.ts";

const PROMPT = "task";
const METHODS = ["tools/list", "tools/call", "prompts/list", "prompts/get"];
const MARK = "dev.ludus/step";
const MARK_FIELDS = fields({
  step: { type: ["integer", "null"], minimum: 1, default: null },
  key: { type: "string", minLength: 1, maxLength: 128 },
});
const ANSWER = fields({ answer: { type: "string" } });
const SUBMIT_TOOL = { name: SUBMIT, description: "Submit your final answer and end the episode.", inputSchema: ANSWER };

/** The capabilities that this server has given out. */
export class Capabilities {
  readonly #episodes = new Map<string, string>();

  /** Create the way to an episode. */
  grant(episode: Episode): JsonObject {
    const capability = randomBytes(24).toString("base64url");
    const seconds = limits.seconds + limits.keep;
    this.#episodes.set(capability, episode.id);
    setTimeout(() => this.#episodes.delete(capability), seconds * 1000).unref();
    return { path: `/play/${capability}/mcp`, expiresAt: Date.now() / 1000 + seconds };
  }

  /** Return the endpoint that a path opens; throw if it opens none. */
  open(path: string, control: Control): Endpoint {
    const capability = /^\/play\/([^/]+)\/mcp$/.exec(path)?.[1] ?? "";
    const id = this.#episodes.get(capability);
    if (id === undefined) throw new Refusal(4011, "this play capability is unknown or has expired");
    return new Play(control.use(id));
  }
}

class Play implements Endpoint {
  readonly capabilities = { tools: {}, prompts: {} };
  readonly settings = null;
  readonly instructions: string;
  /** Undefined if the server has forgotten it. */
  readonly #episode: Episode | undefined;

  constructor(episode: Episode | undefined) {
    this.#episode = episode;
    const blocks = episode?.prompt.flatMap((message) => message.content) ?? [];
    this.instructions = blocks.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n\n");
  }

  knows(method: string): boolean {
    return METHODS.includes(method);
  }

  async call(method: string, params: JsonObject, meta: JsonObject): Promise<JsonObject> {
    const episode = this.#episode;
    if (method === "tools/list") return { tools: episode ? toolsOf(episode) : [] };
    if (method === "tools/call") return callTool(episode, params, meta[MARK]);
    if (method === "prompts/list") return { prompts: [{ name: PROMPT, description: "The task of this episode." }] };
    if (params["name"] !== PROMPT) throw new Refusal(-32602, `there is no prompt ${JSON.stringify(params["name"])}`);
    const messages = episode?.prompt.flatMap(({ role, content }) =>
      content.map((each) => ({ role: role === "system" ? "user" : role, content: each })),
    );
    return { messages: messages ?? [] };
  }
}

function toolsOf(episode: Episode): Json[] {
  const { tools, gradable } = episode.environment;
  return (gradable ? [...tools, SUBMIT_TOOL] : tools) as Json[];
}

async function callTool(episode: Episode | undefined, params: JsonObject, given: Json | undefined): Promise<JsonObject> {
  const { name, arguments: args = {} } = params;
  if (typeof name !== "string") throw new Refusal(-32602, "name must be a string");
  if (!isObject(args)) throw new Refusal(-32602, "arguments must be an object");
  if (!episode) return say("This episode is over and forgotten.", true);
  const mark = readMark(given);
  try {
    const known = toolsOf(episode).some((tool) => isObject(tool) && tool["name"] === name);
    if (!known && episode.endReason === null) throw new Refusal(-32602, `there is no tool ${JSON.stringify(name)}`);
    if (name === SUBMIT) return await submit(episode, args, mark.key);
    return show(await episode.step(mark.step, name, args, mark.key));
  } catch (error) {
    if (error instanceof Invalid) return say(error.message, true);
    if (!(error instanceof Refusal) || error.code < 4093) throw error;
    return say(error.code === 4093 ? `This episode is over: ${error.message}.` : error.message, true);
  }
}

function readMark(given: Json | undefined): { step: number | null; key: string } {
  if (given === undefined) return { step: null, key: randomUUID() };
  try {
    return checkGiven(MARK_FIELDS, given, MARK) as { step: number | null; key: string };
  } catch (error) {
    throw new Refusal(-32602, (error as Error).message);
  }
}

async function submit(episode: Episode, args: JsonObject, key: string): Promise<JsonObject> {
  const { answer } = checkGiven(ANSWER, args, "arguments") as { answer: string };
  await episode.grade(answer, key);
  return say("The answer was submitted. This episode is over.", false);
}

function show({ content, error, endReason }: StepResult): JsonObject {
  const blocks: Json[] = [...content];
  if (endReason !== null) blocks.push({ type: "text", text: `This episode is over (${endReason}).` });
  return { content: blocks, isError: error !== null };
}

function say(text: string, isError: boolean): JsonObject {
  return { content: [{ type: "text", text }], isError };
}
