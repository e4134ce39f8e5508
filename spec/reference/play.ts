// The module `play`: an MCP endpoint for each episode, where an agent sees its tools, its prompt and its observations.
import { randomBytes, randomUUID } from "node:crypto";
import type { Control } from "./control.ts";
import { limits, type Episode } from "./episodes.ts";
import type { Endpoint } from "./mcp.ts";
import { Invalid, KEY, TEXT, checkSound, fields, integer, nullable } from "./schema.ts";
import { Refusal, isObject, write, type Json, type JsonObject } from "./wire.ts";

const MARK = "dev.ludus/step";
const MARK_SCHEMA = fields({ step: nullable(integer(1)), key: KEY });
const ANSWER = fields({ answer: TEXT });
const SUBMIT = { name: "submit_answer", description: "Submit your final answer, and end.", inputSchema: ANSWER };

/** The capabilities that this server has given out, and the ids of their episodes. */
export class Capabilities {
  readonly #episodes = new Map<string, string>();

  /** Give out the way to an episode. */
  grant(episode: Episode): JsonObject {
    const capability = randomBytes(24).toString("base64url");
    const seconds = limits.seconds + limits.keep;
    this.#episodes.set(capability, episode.id);
    setTimeout(() => this.#episodes.delete(capability), seconds * 1000).unref();
    return { path: `/play/${capability}/mcp`, expiresAt: Date.now() / 1000 + seconds };
  }

  /** Return the endpoint at a path; null if it holds no capability, or one that has expired. */
  open(path: string, control: Control): Endpoint | null {
    const id = this.#episodes.get(/^\/play\/([^/]+)\/mcp$/.exec(path)?.[1] ?? "");
    if (id === undefined) return null;
    const episode = control.use(id);
    return {
      capabilities: { tools: {}, prompts: {} },
      settings: null, instructions: episode?.prompt ?? "",
      knows: (method) => ["tools/list", "tools/call", "prompts/list", "prompts/get"].includes(method),
      call: (method, params, meta) => answer(episode, method, params, meta),
    };
  }
}

type Known = Episode | undefined;
type Mark = { step: number | null; key: string };

/** Answer an agent; the episode is undefined if the server has forgotten it. */
async function answer(episode: Known, method: string, given: JsonObject, meta: JsonObject): Promise<JsonObject> {
  const { gradable = false, tools = [] } = episode?.subject.environment ?? {};
  const listed = gradable ? [...tools, SUBMIT] : tools;
  if (method === "tools/list") return { tools: listed as Json };
  if (method === "prompts/list") return { prompts: [{ name: "task", description: "The task of this episode." }] };
  const { name, arguments: args = {} } = given;
  const isPrompt = method === "prompts/get";
  const isKnown = isPrompt ? name === "task" : episode?.endReason !== null || listed.some((tool) => tool.name === name);
  if (!isKnown) throw new Refusal(-32602, `there is no ${isPrompt ? "prompt" : "tool"} ${write(name)}`);
  const prompt = { role: "user", content: { type: "text", text: episode?.prompt ?? "" } };
  if (isPrompt) return { messages: [prompt] };
  if (!isObject(args)) throw new Refusal(-32602, "arguments must be an object");
  if (!episode) return say(true, "This episode has ended, and this server has forgotten it.");
  const { step, key } = checkSound(MARK_SCHEMA, meta[MARK] ?? { key: randomUUID() }, MARK) as Mark;
  try {
    if (name === SUBMIT.name) {
      const { answer } = checkSound(ANSWER, args, "arguments") as { answer: string };
      await episode.grade(answer, key);
      return say(false, `This episode has ended (${episode.endReason}).`);
    }
    const { content, error, endReason } = await episode.step(step, String(name), args, key);
    const over = endReason === null ? [] : [`This episode has ended (${endReason}).`];
    return say(error !== null, content[0].text, ...over);
  } catch (error) {
    if (!(error instanceof Invalid || (error instanceof Refusal && error.error.code >= 4093))) throw error;
    return say(true, error.message, ...(episode.endReason === null ? [] : ["This episode has ended."]));
  }
}

function say(isError: boolean, ...texts: string[]): JsonObject {
  return { content: texts.map((text) => ({ type: "text", text })), isError };
}
