// The example: guess a number. It has rewards of steps and of answers, refusals, seeds, two ends and a test split.
import { createHash } from "node:crypto";
import { Refused, type Environment, type Outcome, type Reward, type World } from "./environment.ts";
import { fields, integer } from "./schema.ts";

const HIGHEST = 100;
const GUESSES = 10;
const PRICE = 1 / 16;
const inputSchema = fields({ number: integer(1, HIGHEST) });
/** Draw a number that depends on a text alone. */
const draw = (text: string) => 1 + (createHash("sha256").update(text).digest().readUInt32BE() % HIGHEST);
const reward = (component: string, value: number): Reward => ({ value, components: { [component]: { value } } });

function open(secret: number, seed: number): World {
  const guessed = new Set<number>();
  const decoys = [1, 2, 3].map((place) => draw(`decoy ${seed} ${place}`)).filter((each) => each !== secret);
  return {
    setUp: async () => `Find a number from 1 to ${HIGHEST} with ${GUESSES} guesses. It is not ${decoys.join(" or ")}.`,
    async call(_tool, args): Promise<Outcome> {
      const guess = args["number"] as number;
      if (guessed.has(guess)) throw new Refused(`${guess} was guessed before`);
      const metadata = { guesses: guessed.add(guess).size };
      if (guess === secret) return { text: "correct", reward: reward("correct", 1), metadata, done: "completed" };
      const done = guessed.size === GUESSES ? "truncated" : null;
      return { text: guess < secret ? "higher" : "lower", reward: reward("wrong", -PRICE), metadata, done };
    },
    grade: async (answer) => reward("correct", answer.trim() === String(secret) ? 1 : 0),
    async tearDown() {},
  };
}

const environment: Environment = {
  name: "guess", description: "Guess a number from hints.", version: "1.0.0",
  splits: [{ name: "train", type: "train", count: 200 }, { name: "test", type: "test", count: 50 }],
  tools: [{ name: "guess", description: `Says higher, lower or correct; a wrong guess costs ${PRICE}.`, inputSchema }],
  seedable: true, gradable: true, rewardRange: [-GUESSES * PRICE, 1],
  task: (split, index) => ({
    id: `${split}-${index}`, split, index, fields: { highest: HIGHEST }, secret: draw(`secret ${split} ${index}`),
  }),
  find(split, id) {
    const index = Number.parseInt(id.slice(split.length + 1), 10);
    return index >= 0 && id === `${split}-${index}` ? index : null;
  },
  create: (task, seed) => open(task.secret as number, seed),
};

export default environment;
