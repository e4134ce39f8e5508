// Episodes: their lives, their steps in order and exactly once, and their rewards.
import { randomBytes } from "node:crypto";
import { Refused, type Environment, type Outcome, type Reward, type Task, type World } from "./environment.ts";
import { ANY_OBJECT, Invalid, TEXT, checkSound, fields, nullable, type Schema } from "./schema.ts";
import { Refusal, digest, logIncident, type Json, type JsonObject } from "./wire.ts";

/** The server's own limits: times in seconds, and the most steps of an episode and running episodes. */
export const limits = { idle: 900, seconds: 3600, call: 60, keep: 60, steps: 1000, episodes: 4096 };
const STATUS = {
  completed: "completed", submitted: "completed", step_limit: "truncated", time_limit: "truncated",
  truncated: "truncated", closed: "truncated", expired: "closed", server_stopped: "closed", environment_error: "failed",
};
export type EndReason = keyof typeof STATUS;

const COMPONENTS: Schema = { ...ANY_OBJECT, additionalProperties: fields({ value: { type: "number" } }) };
const REWARD = fields({ value: { type: ["number", "null"] }, components: COMPONENTS, reason: nullable(TEXT) });
const DONE: Schema = { enum: ["completed", "truncated", null], default: null };
const LATE: Json = { text: "The time of this episode has ended." };
const OUTCOME = fields({ text: TEXT, reward: nullable(REWARD), metadata: ANY_OBJECT, done: DONE });

type Text = { type: string; text: string };
type StepResult = JsonObject & { content: [Text]; error: JsonObject | null; endReason: EndReason | null };
type Call = { params: string; step: number; reply: Promise<unknown> };
type Subject = { group: string; environment: Environment; task: Task; seed: number };

export class Episode {
  readonly id = `e_${randomBytes(12).toString("base64url")}`;
  readonly subject: Subject;
  readonly log: { step: number; source: "step" | "grade"; reward: Reward }[] = [];
  readonly ended = Promise.withResolvers<void>();
  freed: Promise<void> = Promise.resolve(); // settled when what it held is free
  endReason: EndReason | null = null;
  prompt = "";
  steps = 0; // the number of the last accepted one
  #incident: string | null = null;
  #world: World | undefined;
  #calls = new Map<string, Call>();
  #tail: Promise<unknown> = Promise.resolve();
  #idle: NodeJS.Timeout | undefined;
  #isBusy = false;

  constructor(subject: Subject) {
    this.subject = subject;
  }

  get status(): string {
    return this.endReason === null ? "running" : STATUS[this.endReason];
  }

  /** Set the world up and start the clocks. */
  async open(): Promise<void> {
    const { environment, task, seed } = this.subject;
    const setUp = () => (this.#world = environment.create(task, seed)).setUp();
    this.prompt = (await this.#run(setUp, TEXT)) as string;
    const deadline = setTimeout(() => this.end("time_limit"), limits.seconds * 1000).unref();
    this.#idle = setTimeout(() => (this.#isBusy ? this.touch() : this.end("expired")), limits.idle * 1000).unref();
    void this.ended.promise.then(() => [deadline, this.#idle].forEach(clearTimeout));
  }

  /** Postpone the idle expiry. */
  touch(): this {
    if (this.endReason === null) this.#idle?.refresh();
    return this;
  }

  end(reason: EndReason): void {
    if (this.endReason !== null) return;
    this.endReason = reason;
    this.ended.resolve();
    const freed = Promise.resolve().then(() => this.#world?.tearDown());
    this.freed = freed.catch((error: unknown) => void logIncident("a teardown", error));
  }

  /** Accept a step and return its outcome. Without a number it is the next one, or the one that has the key. */
  step(number: number | null, tool: string, args: JsonObject, key: string): Promise<StepResult> {
    const step = number ?? this.#calls.get(key)?.step ?? this.steps + 1;
    return this.#accept(key, digest(["step", step, tool, args]), step, () => this.#perform(step, tool, args));
  }

  /** Accept the final answer and return what it earned; null if it is not graded, or if its time ended. */
  grade(answer: string, key: string): Promise<Reward | null> {
    const step = this.steps;
    return this.#accept(key, digest(["grade", answer]), 0, async () => {
      const grade = () => (this.subject.environment.gradable ? this.#world!.grade(answer) : Promise.resolve(null));
      const reward = (await this.#run(grade, nullable(REWARD), null)) as Reward | null;
      if (reward) this.log.push({ step, source: "grade", reward });
      this.end("submitted");
      return reward;
    });
  }

  /** Check a call in order: its key, the end of the episode, and its number, which is 0 for a grade. */
  #accept<T>(key: string, params: string, step: number, perform: () => Promise<T>): Promise<T> {
    const known = this.#calls.get(key);
    if (known?.params === params) return known.reply as Promise<T>;
    if (known) throw new Refusal(4092, `the key ${JSON.stringify(key)} was used for something else`);
    this.#requireRunning();
    if (step !== 0 && step !== this.steps + 1) {
      throw new Refusal(4091, `step ${step} is out of turn: the next one is ${this.steps + 1}`, { episode: this.id });
    }
    this.steps = step || this.steps;
    const reply = this.#tail.then(() => (this.#requireRunning(), perform()));
    this.#tail = reply.catch(() => undefined);
    this.#calls.set(key, { params, step, reply });
    return reply;
  }

  #requireRunning(): void {
    const data = { endReason: this.endReason, episode: this.id };
    if (this.endReason !== null) throw new Refusal(4093, `the episode has ended (${this.endReason})`, data);
  }

  async #perform(step: number, tool: string, args: JsonObject): Promise<StepResult> {
    const { tools } = this.subject.environment;
    let error: { code: string; message: string } | null = null;
    let outcome: Outcome = { text: "" };
    try {
      const spec = tools.find((each) => each.name === tool);
      const given = checkSound(spec?.inputSchema ?? {}, args, "arguments") as JsonObject;
      if (spec) outcome = (await this.#run(() => this.#world!.call(tool, given), OUTCOME, LATE)) as Outcome;
      else error = { code: "unknown_tool", message: `there is no tool ${JSON.stringify(tool)}` };
    } catch (thrown) {
      if (thrown instanceof Invalid) error = { code: "invalid_arguments", message: thrown.message };
      else if (thrown instanceof Refused) error = { code: "refused", message: thrown.message };
      else throw thrown;
    }
    const { reward = null, metadata = {}, done = null } = outcome;
    if (reward) this.log.push({ step, source: "step", reward });
    if (done) this.end(done);
    else if (step >= limits.steps) this.end("step_limit");
    const content: [Text] = [{ type: "text", text: error?.message ?? outcome.text }];
    return { step, content, error, reward, metadata, status: this.status, endReason: this.endReason };
  }

  /** Run the environment's code. If it throws, takes too long or returns what it may not, the episode has failed. */
  async #run(call: () => Promise<unknown>, schema: Schema, ifLate: Json = null): Promise<Json> {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(new Error(`it took more than ${limits.call} s`)), limits.call * 1000);
    this.#isBusy = true;
    try {
      const value = await Promise.race([Promise.resolve().then(call), late.promise, this.ended.promise]);
      this.#requireRunning();
      return checkSound(schema, value, "the returned value", ["string"]);
    } catch (error) {
      if (this.endReason === "time_limit") return ifLate;
      this.#requireRunning();
      if (error instanceof Refused && schema === OUTCOME) throw error;
      const incident = (this.#incident = logIncident(`the environment ${this.subject.environment.name}`, error));
      this.end("environment_error");
      const data = { incident, endReason: this.endReason, episode: this.id };
      throw new Refusal(5001, `the environment failed (incident ${incident})`, data);
    } finally {
      clearTimeout(timer);
      this.#isBusy = false;
      this.touch();
    }
  }

  total(): Reward {
    const reason = `the episode ended with ${this.endReason}`;
    if (this.status === "failed" || this.status === "closed") return { value: null, reason };
    if (!this.log.length) return { value: 0, reason: "nothing was rewarded" };
    const total: Required<Reward> = { value: 0, components: {}, reason: null };
    for (const { reward } of this.log) {
      total.reason ??= reward.value === null ? (reward.reason ?? "unscored") : null;
      total.value = total.value === null || reward.value === null ? null : total.value + reward.value;
      for (const [name, { value }] of Object.entries(reward.components ?? {})) {
        total.components[name] = { value: value + (total.components[name]?.value ?? 0) };
      }
    }
    return total;
  }

  /** The state that trainers see. */
  info(): JsonObject {
    const { group, environment, task, seed } = this.subject;
    const state = { status: this.status, endReason: this.endReason, steps: this.steps, reward: this.total() as Json };
    const subject = { group, environment: environment.name, task: rowOf(environment, task), seed };
    return { episode: this.id, ...subject, ...state, incident: this.#incident };
  }

  /** What trainers see at the start. */
  shown(): JsonObject {
    const { environment, task, seed } = this.subject;
    const prompt = [{ role: "user", content: [{ type: "text", text: this.prompt }] }];
    const { tools, gradable } = environment;
    return { episode: this.id, task: rowOf(environment, task), seed, prompt, tools: tools as Json, gradable };
  }
}

/** Return what trainers see of a task; the fields of one in a test split are hidden. */
export function rowOf({ splits }: Environment, { id, split, index, fields: shown }: Task): JsonObject {
  const isTest = splits.some((each) => each.name === split && each.type === "test");
  return { id, split, index, fields: isTest ? {} : shown };
}
