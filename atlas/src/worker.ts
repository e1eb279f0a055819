/** Decode the data and answer questions, so that the page itself never waits. */

import { Data } from "./columns";
import { Flows } from "./flows";
import type { Geography } from "./geography";
import type { Answer, Opened, Question, Questions, Name, Side } from "./messages";

let flows: Flows;

function side(geography: Geography, size: (level: number) => Float64Array): Side {
  const { levels, codes, labels, parents, places } = geography;
  return { levels, codes, labels, parents, places, sizes: levels.map((_, level) => size(level)) };
}

async function open(base64: string): Promise<Opened> {
  const data = await Data.decoded(base64);
  flows = new Flows(data);
  const { origin, destination } = flows.tree;
  const sizes = origin.levels.map((_, level) => flows.sizes(level));
  const { title, release, notes } = data.header;
  return {
    header: { title, release, notes },
    origin: side(origin, (level) => sizes[level].begun),
    destination: side(destination, (level) => sizes[level].ended),
    sameAreas: flows.sameAreas,
    hasIntervals: data.header.fits.length > 0,
  };
}

async function answer(question: Question): Promise<Questions[Name]["answer"]> {
  switch (question.name) {
    case "open":
      return open(question.ask.data);
    case "totals":
      return flows.totals(question.ask.selected);
    case "partners": {
      const { selected, direction, level, most } = question.ask;
      return flows.partners(selected, direction, level, most);
    }
    case "largest":
      return flows.largest(question.ask.level, question.ask.most);
    case "matrix":
      return flows.matrix(question.ask.level, question.ask.origins, question.ask.destinations);
    case "between":
      return flows.between(question.ask.origins, question.ask.destinations);
  }
}

onmessage = async ({ data: question }: MessageEvent<Question>) => {
  let reply: Answer;
  try {
    reply = { id: question.id, answer: await answer(question) };
  } catch (error) {
    reply = { id: question.id, error: String(error) };
  }
  postMessage(reply);
};
