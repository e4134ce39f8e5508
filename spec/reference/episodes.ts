// Episodes: their lives, their steps in order and exactly once, and their rewards.
import { randomBytes, randomUUID } from "node:crypto";
import { OUTCOME, PROMPT, REWARD, Refused } from "./environment.ts";
import type { Block, Environment, Message, Outcome, Reward, Task, World } from "./environment.ts";
import { Invalid, checkGiven, check, type Schema } from "./schema.ts";
import { Refusal, digest, findUnsound, type Json, type JsonObject } from "./wire.ts";

/** The server's own limits. All times are in seconds. */
export const limits = { steps: 1000, seconds: 3600, idle: 900, call: 60, keep: 60, episodes: 4096, waiting: 256 };

const STATUS = {
  completed: "completed",
  submitted: "completed",
  step_limit: "truncated",
  time_limit: "truncated",
  truncated: "truncated",
  closed: "truncated",
  expired: "closed",
  server_stopped: "closed",
  environment_error: "failed",
} as const;
export type EndReason = keyof typeof STATUS;

export type Entry = { step: number; source: "step" | "grade"; reward: Reward };
export type StepResult = {
  step: number;
  content: Block[];
  error: { code: "unknown_tool" | "invalid_arguments" | "refused"; message: string } | null;
  reward: Reward | null;
  metadata: JsonObject;
  status: string;
  endReason: EndReason | null;
};
type Call = { params: string; step: number; reply: Promise<unknown> };

/** The end of an episode that came while the environment's code ran. */
class Interrupted extends Error {}

/** Log a fault; return the id of the log's line, which is all that a caller sees of it. */
export function logIncident(what: string, error: unknown): string {
  const incident = randomUUID();
  console.error(`incident ${incident} in ${what}:`, error);
  return incident;
}

export class Episode {
  readonly id = `e_${randomBytes(12).toString("base64url")}`;
  readonly group: string;
  readonly environment: Environment;
  readonly task: Task;
  readonly seed: number;
  readonly log: Entry[] = [];
  prompt: Message[] = [];
  endReason: EndReason | null = null;
  incident: string | null = null;
  /** The number of the last accepted step. */
  steps = 0;
  /** Settled when the episode has ended. */
  readonly ended: Promise<void>;
  /** Settled when what it held is free. */
  freed: Promise<void> = Promise.resolve();
  #world: World | undefined;
  readonly #calls = new Map<string, Call>();
  readonly #end: () => void;
  #waiting = 0;
  #tail: Promise<unknown> = Promise.resolve();
  #idle: NodeJS.Timeout | undefined;
  #deadline: NodeJS.Timeout | undefined;

  constructor(group: string, environment: Environment, task: Task, seed: number) {
    this.group = group;
    this.environment = environment;
    this.task = task;
    this.seed = seed;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.ended = promise;
    this.#end = resolve;
  }

  get status(): string {
    return this.endReason === null ? "running" : STATUS[this.endReason];
  }

  /** Set the world up and let the clocks run. */
  async open(): Promise<void> {
    const setUp = () => {
      this.#world = this.environment.create(this.task, this.seed);
      return this.#world.setUp();
    };
    this.prompt = await this.#run(setUp, PROMPT);
    this.#deadline = setTimeout(() => this.end("time_limit"), limits.seconds * 1000).unref();
    const expire = () => (this.#waiting ? this.touch() : this.end("expired"));
    this.#idle = setTimeout(expire, limits.idle * 1000).unref();
  }

  /** Postpone the idle expiry. */
  touch(): void {
    if (this.endReason === null) this.#idle?.refresh();
  }

  end(reason: EndReason): void {
    if (this.endReason !== null) return;
    this.endReason = reason;
    clearTimeout(this.#deadline);
    clearTimeout(this.#idle);
    this.#end();
    const tearDown = Promise.resolve().then(() => this.#world?.tearDown());
    this.freed = tearDown.catch((error: unknown) => void logIncident("a teardown", error));
  }

  /** Accept a step and return its outcome; without a number it is the next one, or the one that has the key. */
  step(number: number | null, tool: string, args: JsonObject, key: string): Promise<StepResult> {
    const step = number ?? this.#calls.get(key)?.step ?? this.steps + 1;
    const perform = () => this.#perform(step, tool, args);
    return this.#accept(key, digest(["step", step, tool, args]), step, perform) as Promise<StepResult>;
  }

  /** Accept the final answer and return its reward. */
  grade(answer: string, key: string): Promise<Reward | null> {
    return this.#accept(key, digest(["grade", answer]), 0, () => this.#grade(answer)) as Promise<Reward | null>;
  }

  /** The checks of a call in their order: its key, the end, its number (0 for a grade), and room. */
  #accept(key: string, params: string, step: number, perform: () => Promise<unknown>): Promise<unknown> {
    const known = this.#calls.get(key);
    if (known?.params === params) return known.reply;
    if (known) throw new Refusal(4092, `the key ${JSON.stringify(key)} was used for something else`);
    this.#requireRunning();
    if (step !== 0 && step !== this.steps + 1) {
      throw new Refusal(4091, `step ${step} is out of turn; the next one is ${this.steps + 1}`, { episode: this.id });
    }
    if (this.#waiting >= limits.waiting) {
      throw new Refusal(4290, `${limits.waiting} calls wait already`, { limit: limits.waiting, retryAfter: 1 });
    }
    if (step !== 0) this.steps = step;
    this.#waiting += 1;
    const reply = this.#tail.then(perform);
    this.#tail = reply.catch(() => undefined).then(() => (this.#waiting -= 1));
    this.#calls.set(key, { params, step, reply });
    return reply;
  }

  #requireRunning(): void {
    if (this.endReason === null) return;
    const data = { endReason: this.endReason, episode: this.id };
    throw new Refusal(4093, `the episode has ended (${this.endReason})`, data);
  }

  async #perform(step: number, tool: string, args: JsonObject): Promise<StepResult> {
    this.#requireRunning();
    let outcome: Outcome = { content: [] };
    let error: StepResult["error"] = null;
    try {
      const spec = this.environment.tools.find((each) => each.name === tool);
      if (spec) {
        const checked = checkGiven(spec.inputSchema, args, "arguments");
        outcome = await this.#run(() => this.#world!.call(tool, checked), OUTCOME, true);
      } else {
        const names = this.environment.tools.map((each) => each.name).join(", ");
        error = { code: "unknown_tool", message: `there is no tool ${JSON.stringify(tool)}; there is: ${names}` };
      }
    } catch (thrown) {
      if (thrown instanceof Invalid) error = { code: "invalid_arguments", message: thrown.message };
      else if (thrown instanceof Refused) error = { code: "refused", message: thrown.message };
      else if (!(thrown instanceof Interrupted)) throw thrown;
      else if (this.endReason !== "time_limit") this.#requireRunning();
      else outcome = { content: [{ type: "text", text: "The time of the episode is over." }] };
    }
    if (error) outcome = { content: [{ type: "text", text: error.message }] };
    const reward = outcome.reward ?? null;
    if (reward) this.log.push({ step, source: "step", reward });
    if (outcome.done) this.end(outcome.done);
    else if (step >= limits.steps) this.end("step_limit");
    const { content, metadata = {} } = outcome;
    return { step, content, error, reward, metadata, status: this.status, endReason: this.endReason };
  }

  async #grade(answer: string): Promise<Reward | null> {
    this.#requireRunning();
    const step = this.steps;
    let reward: Reward | null = null;
    try {
      if (this.environment.gradable) reward = await this.#run(() => this.#world!.grade(answer), REWARD);
    } catch (thrown) {
      if (thrown instanceof Interrupted) this.#requireRunning();
      throw thrown;
    }
    if (reward) this.log.push({ step, source: "grade", reward });
    this.end("submitted");
    return reward;
  }

  /** Run the environment's code; what it throws, delays or returns against its schema fails the episode. */
  async #run<T>(call: () => Promise<T>, schema: Schema, mayRefuse = false): Promise<T> {
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => reject(new Error(`it took more than ${limits.call} s`)), limits.call * 1000);
    const cut = this.ended.then(() => {
      throw new Interrupted();
    });
    try {
      const value = await Promise.race([Promise.resolve().then(call), late, cut]);
      if (this.endReason === null) return checkReturned(value, schema) as T;
      throw new Interrupted();
    } catch (error) {
      if (this.endReason !== null) throw new Interrupted();
      if (mayRefuse && error instanceof Refused) throw error;
      this.incident = logIncident(`the environment ${this.environment.name}`, error);
      this.end("environment_error");
      const data = { incident: this.incident, endReason: "environment_error", episode: this.id };
      throw new Refusal(5001, `the environment failed (incident ${this.incident})`, data);
    } finally {
      clearTimeout(timer);
    }
  }

  total(): Reward {
    if (this.status === "failed" || this.status === "closed") {
      return { value: null, reason: `the episode ended with ${this.endReason}` };
    }
    if (!this.log.length) return { value: 0, reason: "nothing was rewarded" };
    const total: Required<Reward> = { value: 0, components: {}, missing: {}, reason: null, rubric: null };
    for (const { reward } of this.log) {
      if (reward.value === null) Object.assign(total, { value: null, reason: reward.reason ?? null });
      else if (total.value !== null) total.value += reward.value;
      for (const [name, each] of Object.entries(reward.components ?? {})) {
        total.components[name] = { ...each, value: (total.components[name]?.value ?? 0) + each.value };
      }
      Object.assign(total.missing, reward.missing);
      total.rubric = reward.rubric ?? total.rubric;
    }
    return total;
  }

  info(): Json {
    const { id, group, task, seed, status, endReason, steps, incident } = this;
    const place = { episode: id, group, environment: this.environment.name, task: rowOf(this.environment, task), seed };
    return { ...place, status, endReason, steps, reward: this.total() as JsonObject, incident };
  }
}

/** What trainers see of a task: nothing of one in a test split but its place. */
export function rowOf(environment: Environment, task: Task): JsonObject {
  const isTest = environment.splits.some((split) => split.name === task.split && split.type === "test");
  return { id: task.id, split: task.split, index: task.index, fields: isTest ? {} : task.fields };
}

function checkReturned(value: unknown, schema: Schema): unknown {
  const unsound = findUnsound(value, false);
  if (unsound !== null) throw new Invalid(unsound);
  return check(schema, value, "what it returned");
}
