// The control plane: the methods of the core, and the episodes that they start.
import { randomBytes, randomInt } from "node:crypto";
import type { Environment, Split, Task } from "./environment.ts";
import { Episode, limits, logIncident, rowOf } from "./episodes.ts";
import { Invalid, checkGiven, fields, type Schema } from "./schema.ts";
import { Refusal, digest, findUnsound, type Json, type JsonObject } from "./wire.ts";

export const PREFIX = "dev.ludus/";
/** Names an environment's tools may not have. */
export const SUBMIT = "submit_answer";

const name: Schema = { type: "string", minLength: 1, maxLength: 200 };
const optionalName: Schema = { ...name, type: ["string", "null"], default: null };
const optionalIndex: Schema = { type: ["integer", "null"], minimum: 0, default: null };
const key: Schema = { type: "string", minLength: 1, maxLength: 128 };
const text: Schema = { type: "string" };
/** A field of a module that this server does not offer: only its default is allowed. */
const absent: Schema = { type: "null", default: null };
const none: Schema = { type: "object", additionalProperties: false, default: {} };
const place = { environment: name, split: name };
const choice = { task: optionalName, index: optionalIndex };

const METHODS: Record<string, Schema> = {
  "environments/list": fields({}),
  "splits/list": fields({ environment: name }),
  "tasks/list": fields({
    ...place,
    cursor: { type: ["string", "null"], default: null },
    limit: { type: "integer", minimum: 1, maximum: 1000, default: 100 },
  }),
  "tasks/get": fields({ ...place, ...choice }),
  "episodes/start": fields({
    ...place,
    ...choice,
    seed: optionalIndex,
    count: { type: "integer", minimum: 1, maximum: 1024, default: 1 },
    limits: absent,
    tools: absent,
    secrets: none,
    key,
  }),
  "episodes/step": fields({
    episode: text,
    step: { type: "integer", minimum: 1 },
    tool: text,
    arguments: { type: "object", default: {} },
    turn: absent,
    key,
  }),
  "episodes/grade": fields({ episode: text, answer: text, key }),
  "episodes/rewards": fields({ episode: text, after: { type: "integer", minimum: 0, default: 0 } }),
  "episodes/get": fields({ episode: text }),
  "episodes/close": fields({ episode: text }),
};

type Params = {
  [field: string]: Json;
  environment: string;
  split: string;
  task: string | null;
  index: number | null;
  seed: number | null;
  cursor: string | null;
  limit: number;
  count: number;
  key: string;
  episode: string;
  step: number;
  tool: string;
  arguments: JsonObject;
  answer: string;
  after: number;
};
type Start = { params: string; reply: Promise<JsonObject> };
/** Returns how an agent reaches an episode. */
export type Access = (episode: Episode) => JsonObject;

export class Control {
  readonly #environments: Environment[];
  readonly #access: Access;
  readonly #episodes = new Map<string, Episode>();
  readonly #starts = new Map<string, Start>();
  #stopping = false;

  constructor(environments: Environment[], access: Access) {
    this.#environments = environments;
    this.#access = access;
  }

  knows(method: string): boolean {
    return method.startsWith(PREFIX) && Object.hasOwn(METHODS, method.slice(PREFIX.length));
  }

  /** Answer a method that this server knows. Steps, grades and starts are accepted before this returns. */
  async call(method: string, given: unknown): Promise<JsonObject> {
    const short = method.slice(PREFIX.length);
    const params = readParams(short, given);
    switch (short) {
      case "environments/list":
        return { environments: this.#environments.map(describe) };
      case "splits/list":
        return { splits: this.#environment(params).splits };
      case "tasks/list":
        return this.#list(params);
      case "tasks/get": {
        const { environment, split } = this.#split(params);
        return { task: rowOf(environment, findTask(environment, split, params) as Task) };
      }
      case "episodes/start":
        return this.#start(params);
      case "episodes/step":
        return (await this.#episode(params).step(params.step, params.tool, params.arguments, params.key)) as Json as JsonObject;
      case "episodes/grade": {
        const episode = this.#episode(params);
        return { reward: (await episode.grade(params.answer, params.key)) as Json, info: episode.info() };
      }
      case "episodes/rewards": {
        const episode = this.#episode(params);
        const { status, endReason } = episode;
        const entries = episode.log.slice(params.after) as Json[];
        return { entries, total: episode.total() as Json, status, endReason };
      }
      default: {
        const episode = this.#episode(params);
        if (short === "episodes/close") episode.end("closed");
        return { info: episode.info() };
      }
    }
  }

  /** Return an episode that a request uses, or undefined if it is unknown or forgotten. */
  use(id: string): Episode | undefined {
    const episode = this.#episodes.get(id);
    episode?.touch();
    return episode;
  }

  /** End all episodes, and wait until they are freed or the time is over. */
  async stop(seconds: number): Promise<void> {
    this.#stopping = true;
    const episodes = [...this.#episodes.values()];
    for (const episode of episodes) episode.end("server_stopped");
    const freed = Promise.all(episodes.map((episode) => episode.freed));
    await Promise.race([freed, new Promise((resolve) => setTimeout(resolve, seconds * 1000).unref())]);
  }

  #episode(params: Params): Episode {
    const episode = this.use(params.episode);
    if (!episode) throw new Refusal(4044, `there is no episode ${JSON.stringify(params.episode)}`);
    return episode;
  }

  #environment(params: Params): Environment {
    const found = this.#environments.find((each) => each.name === params.environment);
    if (!found) throw new Refusal(4041, `there is no environment ${JSON.stringify(params.environment)}`);
    return found;
  }

  #split(params: Params): { environment: Environment; split: Split } {
    const environment = this.#environment(params);
    const split = environment.splits.find((each) => each.name === params.split);
    if (!split) throw new Refusal(4042, `${environment.name} has no split ${JSON.stringify(params.split)}`);
    return { environment, split };
  }

  #list(params: Params): JsonObject {
    const { environment, split } = this.#split(params);
    const cursor = params.cursor ?? "0";
    const first = /^(0|[1-9]\d{0,14})$/.test(cursor) ? Number(cursor) : Infinity;
    if (first > split.count) throw new Refusal(-32602, `cursor ${JSON.stringify(cursor)} is not one of this split`);
    const last = Math.min(first + params.limit, split.count);
    const tasks: Json[] = [];
    for (let index = first; index < last; index++) tasks.push(rowOf(environment, taskAt(environment, split, index)));
    return { tasks, nextCursor: last < split.count ? String(last) : null };
  }

  #start(params: Params): Promise<JsonObject> {
    const { environment, split } = this.#split(params);
    const named = findTask(environment, split, params);
    const wanted = digest(params);
    const known = this.#starts.get(params.key);
    if (known?.params === wanted) return known.reply;
    if (known) throw new Refusal(4092, `the key ${JSON.stringify(params.key)} was used for another start`);
    if (params.seed !== null && !environment.seedable) throw new Refusal(4220, `${environment.name} takes no seed`);
    if (this.#stopping) throw new Refusal(5030, "the server is stopping");
    const running = [...this.#episodes.values()].filter((each) => each.endReason === null).length;
    if (running + params.count > limits.episodes) {
      const wait: JsonObject = params.count > limits.episodes ? {} : { retryAfter: 1 };
      throw new Refusal(4290, `there is room for ${limits.episodes} episodes`, { limit: limits.episodes, ...wait });
    }
    const seed = params.seed ?? randomInt(2 ** 47);
    const task = named ?? taskAt(environment, split, digestIndex(seed, split.count));
    const reply = this.#open(environment, task, seed, params.count, params.key);
    this.#starts.set(params.key, { params: wanted, reply });
    return reply;
  }

  async #open(environment: Environment, task: Task, seed: number, count: number, key: string): Promise<JsonObject> {
    const group = `g_${randomBytes(12).toString("base64url")}`;
    const episodes = Array.from({ length: count }, () => new Episode(group, environment, task, seed));
    let kept = count;
    for (const episode of episodes) {
      this.#episodes.set(episode.id, episode);
      const forget = () => {
        this.#episodes.delete(episode.id);
        if (--kept === 0) this.#starts.delete(key);
      };
      void episode.ended.then(() => setTimeout(forget, limits.keep * 1000).unref());
    }
    const opened = await Promise.allSettled(episodes.map((episode) => episode.open()));
    const failed = opened.find((each) => each.status === "rejected");
    if (!failed) return { group, episodes: episodes.map((episode) => this.#started(episode)) };
    for (const episode of episodes) episode.end("closed");
    throw this.#stopping ? new Refusal(5030, "the server is stopping") : (failed.reason as Error);
  }

  #started(episode: Episode): JsonObject {
    const { id, environment, task, seed, prompt } = episode;
    const { tools, gradable } = environment;
    const row = rowOf(environment, task);
    return { episode: id, task: row, seed, prompt, tools: tools as Json, gradable, play: this.#access(episode) };
  }
}

/** Check params: their fields, and that every peer reads them alike. A call's arguments are judged as its step. */
function readParams(method: string, given: unknown): Params {
  try {
    const params = checkGiven(METHODS[method] ?? {}, given, "params", false) as Params;
    const { arguments: _arguments, ...others } = params;
    const unsound = findUnsound(others);
    if (unsound !== null) throw new Invalid(`params: ${unsound}`);
    const choices = [params.task, params.index].filter((each) => each !== null && each !== undefined).length;
    if (choices > 1) throw new Invalid("params name both task and index");
    if (method === "tasks/get" && choices === 0) throw new Invalid("params name neither task nor index");
    return params;
  } catch (error) {
    if (error instanceof Invalid) throw new Refusal(-32602, error.message);
    throw error;
  }
}

function describe(environment: Environment): JsonObject {
  const { name, description, version, splits, tools, seedable, gradable, rewardRange } = environment;
  return { name, description, version, splits, tools: tools as Json, seedable, gradable, rewardRange };
}

/** Return the task that params name; undefined if they name none. */
function findTask(environment: Environment, split: Split, params: Params): Task | undefined {
  if (params.task === null && params.index === null) return undefined;
  const index = params.task === null ? params.index : environment.find(split.name, params.task);
  if (index !== null && index < split.count) return taskAt(environment, split, index);
  throw new Refusal(4043, `${split.name} has no task ${JSON.stringify(params.task ?? params.index)}`);
}

/** Return a place below a count that depends on the seed alone. */
function digestIndex(seed: number, count: number): number {
  return Buffer.from(digest(["task", seed]), "base64").readUInt32BE() % count;
}

function taskAt(environment: Environment, split: Split, index: number): Task {
  try {
    return environment.task(split.name, index);
  } catch (error) {
    const incident = logIncident(`the tasks of ${environment.name}`, error);
    throw new Refusal(5001, `the environment failed (incident ${incident})`, { incident });
  }
}
