// The example: guess a number. It shows rewards of steps and of answers, refusals, seeds, both ends, and a test split.
import { createHash } from "node:crypto";
import { Refused, type Environment, type Message, type Outcome, type Reward, type Task, type World } from "./environment.ts";
import type { JsonObject } from "./wire.ts";

const HIGHEST = 100;
const CALLS = 10;
const PRICE = 1 / 16;

class Guess implements World {
  readonly #secret: number;
  readonly #decoys: number[];
  readonly #guessed = new Set<number>();
  #calls = 0;

  constructor(secret: number, seed: number) {
    this.#secret = secret;
    const drawn = [1, 2, 3].map((place) => numberOf(`decoy ${seed} ${place}`)).filter((each) => each !== secret);
    this.#decoys = [...new Set(drawn)];
  }

  async setUp(): Promise<Message[]> {
    const not = this.#decoys.length ? ` It is not ${this.#decoys.join(", ")}.` : "";
    const rules = `Find a whole number from 1 to ${HIGHEST} with at most ${CALLS} calls of the tools.${not}`;
    return [{ role: "user", content: [{ type: "text", text: rules }] }];
  }

  async call(tool: string, args: JsonObject): Promise<Outcome> {
    const number = args["number"] as number;
    if (tool === "guess" && this.#guessed.has(number)) throw new Refused(`${number} was guessed before`);
    this.#calls += 1;
    const last = this.#calls === CALLS;
    const rest = { metadata: { calls: this.#calls }, done: last ? ("truncated" as const) : null };
    if (tool === "divides") {
      const says = this.#secret % number === 0 ? "yes" : "no";
      const reward = { value: -PRICE, components: { questions: { value: -PRICE } } };
      return { content: [{ type: "text", text: says }], reward, ...rest };
    }
    this.#guessed.add(number);
    if (number === this.#secret) return { content: [{ type: "text", text: "correct" }], ...rest, ...finish() };
    return { content: [{ type: "text", text: number < this.#secret ? "higher" : "lower" }], ...rest };
  }

  async grade(answer: string): Promise<Reward> {
    const value = answer.trim() === String(this.#secret) ? 1 : 0;
    return { value, components: { correct: { value } } };
  }

  async tearDown(): Promise<void> {}
}

function finish(): { reward: Reward; done: "completed" } {
  return { reward: { value: 1, components: { correct: { value: 1 } } }, done: "completed" };
}

function numberOf(text: string): number {
  return 1 + (createHash("sha256").update(text).digest().readUInt32BE() % HIGHEST);
}

const integer = (least: number, description: string) => ({
  type: "object",
  properties: { number: { type: "integer", minimum: least, maximum: HIGHEST, description } },
  required: ["number"],
  additionalProperties: false,
});

const environment: Environment = {
  name: "guess",
  description: "Guess a number from hints.",
  version: "1.0.0",
  splits: [
    { name: "train", type: "train", count: 200 },
    { name: "test", type: "test", count: 50 },
  ],
  tools: [
    {
      name: "guess",
      description: "Guess the number; says `higher`, `lower` or `correct`.",
      inputSchema: integer(1, "Your guess."),
    },
    {
      name: "divides",
      description: `Ask whether a number divides it. Costs ${PRICE}.`,
      inputSchema: integer(2, "The number that may divide it."),
    },
  ],
  seedable: true,
  gradable: true,
  rewardRange: [-CALLS * PRICE, 1],
  task: (split, index): Task => ({
    id: `${split}-${index}`,
    split,
    index,
    fields: { highest: HIGHEST, calls: CALLS },
    secret: numberOf(`secret ${split} ${index}`),
  }),
  find(split, id) {
    const digits = /^([a-z]+)-(0|[1-9]\d{0,8})$/.exec(id);
    return digits !== null && digits[1] === split ? Number(digits[2]) : null;
  },
  create: (task, seed) => new Guess(task.secret as number, seed),
};

export default environment;
