// The control plane: the methods of the core, and the episodes that they start.
import { randomBytes, randomInt } from "node:crypto";
import type { Environment, Split, Task } from "./environment.ts";
import { Episode, limits, rowOf } from "./episodes.ts";
import { ANY_OBJECT, Invalid, KEY, TEXT, check, checkSound, fields, integer, nullable, type Schema } from "./schema.ts";
import { Refusal, digest, write, type Json, type JsonObject } from "./wire.ts";

export const PREFIX = "dev.ludus/";
const name: Schema = { ...TEXT, minLength: 1, maxLength: 200 };
const place = { environment: name, split: name };
const choice = { ...place, task: nullable(name), index: nullable(integer(0)) };
const count = { ...integer(1, 1024), default: 1 };
/** Fields of modules that this server does not offer: only their defaults are allowed. */
const absent = { limits: nullable({}), tools: nullable({}), secrets: { ...ANY_OBJECT, additionalProperties: false } };
const stepOf = { episode: TEXT, step: integer(1), tool: TEXT, arguments: ANY_OBJECT, turn: nullable({}) };

const PARAMS: Record<string, Schema> = {
  "environments/list": fields({}),
  "splits/list": fields({ environment: name }),
  "tasks/list": fields({ ...place, cursor: nullable(TEXT), limit: { ...integer(1, 1000), default: 100 } }),
  "tasks/get": fields(choice),
  "episodes/start": fields({ ...choice, seed: nullable(integer(0)), count, ...absent, key: KEY }),
  "episodes/step": fields({ ...stepOf, key: KEY }),
  "episodes/grade": fields({ episode: TEXT, answer: TEXT, key: KEY }),
  "episodes/rewards": fields({ episode: TEXT, after: { ...integer(0), default: 0 } }),
  "episodes/get": fields({ episode: TEXT }),
  "episodes/close": fields({ episode: TEXT }),
};

type Params = Record<string, any>; // checked
export type Control = ReturnType<typeof createControl>;

/** Whether the core has a method. */
export const knows = (name: string) => name.startsWith(PREFIX) && Object.hasOwn(PARAMS, name.slice(PREFIX.length));
const missing = (code: number, kind: string, name: Json) => new Refusal(code, `there is no ${kind} ${write(name)}`);

/** Return the control plane of an environment; `access` says how an agent reaches an episode. */
export function createControl(environment: Environment, access: (episode: Episode) => JsonObject) {
  const { task: taskAt, find, create: _create, ...info } = environment;
  const episodes = new Map<string, Episode>();
  const starts = new Map<string, { params: string; reply: Promise<JsonObject> }>();
  let isStopping = false;

  /** Return an episode and postpone its idle expiry; undefined if it is unknown or forgotten. */
  const use = (id: string): Episode | undefined => episodes.get(id)?.touch();

  /** Answer a method of the core. What it accepts is accepted before the first wait. */
  async function call(method: string, given: JsonObject): Promise<JsonObject> {
    const short = method.slice(PREFIX.length);
    const params = readParams(short, given);
    if ("episode" in params) return answer(short, params);
    if (short === "environments/list") return { environments: [info] };
    if (short === "episodes/start") return start(params);
    if (short === "tasks/get") return { task: rowOf(environment, choose(params, 0)) };
    if (short === "tasks/list") return listTasks(environment, splitOf(params), params);
    if (params.environment === info.name) return { splits: info.splits };
    throw missing(4041, "environment", params.environment);
  }

  async function answer(method: string, params: Params): Promise<JsonObject> {
    const episode = use(params.episode);
    if (!episode) throw missing(4044, "episode", params.episode);
    if (method === "episodes/step") return episode.step(params.step, params.tool, params.arguments, params.key);
    const graded: JsonObject = {};
    if (method === "episodes/grade") graded["reward"] = await episode.grade(params.answer, params.key);
    if (method === "episodes/close") episode.end("closed");
    if (method !== "episodes/rewards") return { ...graded, info: episode.info() };
    const { log, status, endReason } = episode;
    return { entries: log.slice(params.after), total: episode.total(), status, endReason };
  }

  function splitOf(params: Params): Split {
    if (params.environment !== info.name) throw missing(4041, "environment", params.environment);
    const split = info.splits.find((each) => each.name === params.split);
    if (!split) throw missing(4042, "split", params.split);
    return split;
  }

  /** Return the task that params name; if they name none, one that the seed draws. */
  function choose(params: Params, seed: number): Task {
    const { name, count } = splitOf(params);
    const drawn = parseInt(digest(["task", seed]).slice(0, 12), 16) % count;
    const index = params.task === null ? (params.index ?? drawn) : find(name, params.task);
    if (index !== null && index < count) return taskAt(name, index);
    throw missing(4043, "task", params.task ?? params.index);
  }

  async function start({ key, ...params }: Params): Promise<JsonObject> {
    const wanted = digest(params);
    const known = starts.get(key);
    if (known?.params === wanted) return known.reply;
    if (known) throw new Refusal(4092, `the key ${write(key)} was used for another start`);
    const seed: number = params.seed ?? randomInt(2 ** 47);
    const task = choose(params, seed);
    if (params.seed !== null && !info.seedable) throw new Refusal(4220, "this environment takes no seed");
    if (isStopping) throw new Refusal(5030, "the server is stopping");
    const running = [...episodes.values()].filter((each) => each.endReason === null).length;
    const data = { limit: limits.episodes, retryAfter: 1 };
    if (running + params.count > limits.episodes) throw new Refusal(4290, `${running} episodes run already`, data);
    const group = `g_${randomBytes(12).toString("base64url")}`;
    const members = Array.from({ length: params.count }, () => new Episode({ group, environment, task, seed }));
    const reply = open(group, members);
    starts.set(key, { params: wanted, reply });
    void Promise.all(members.map(keep)).then(() => starts.delete(key));
    return reply;
  }

  async function open(group: string, members: Episode[]): Promise<JsonObject> {
    const opened = await Promise.allSettled(members.map((episode) => episode.open()));
    const failed = opened.find((each) => each.status === "rejected");
    if (!failed) return { group, episodes: members.map((each) => ({ ...each.shown(), play: access(each) })) };
    for (const episode of members) episode.end("closed");
    throw isStopping ? new Refusal(5030, "the server is stopping") : failed.reason;
  }

  /** Keep an episode until some time after its end. */
  async function keep(episode: Episode): Promise<void> {
    episodes.set(episode.id, episode);
    await episode.ended.promise;
    await new Promise((resolve) => setTimeout(resolve, limits.keep * 1000).unref());
    episodes.delete(episode.id);
  }

  /** End all episodes, and wait for a bounded time until they are freed. */
  async function stop(seconds: number): Promise<void> {
    isStopping = true;
    for (const episode of episodes.values()) episode.end("server_stopped");
    const late = new Promise((resolve) => setTimeout(resolve, seconds * 1000).unref());
    await Promise.race([late, Promise.all([...episodes.values()].map((episode) => episode.freed))]);
  }

  return { call, use, stop };
}

function listTasks(environment: Environment, { name, count }: Split, { cursor, limit }: Params): JsonObject {
  const first = /^(0|[1-9]\d{0,14})$/.test(cursor ?? "0") ? Number(cursor) : Infinity;
  if (first > count) throw new Refusal(-32602, `the cursor ${write(cursor)} is not one of this split`);
  const next = Math.min(first + limit, count);
  const row = (_: unknown, place: number) => rowOf(environment, environment.task(name, first + place));
  return { tasks: Array.from({ length: next - first }, row), nextCursor: next < count ? String(next) : null };
}

/** Check params. What a policy writes, the tool and its arguments, may hold anything: its step then says so. */
function readParams(method: string, given: JsonObject): Params {
  const params = check(PARAMS[method] ?? {}, given, "params") as Params;
  const allowed = (name: string) => ({ tool: ["string"], arguments: ["string", "number", "bigint"] })[name] ?? [];
  for (const [name, value] of Object.entries(given)) checkSound({}, value, `params.${name}`, allowed(name));
  const named = [params.task ?? null, params.index ?? null].filter((each) => each !== null).length;
  if (named > 1 || (method === "tasks/get" && named < 1)) throw new Invalid("params: give one of task and index");
  return params;
}
