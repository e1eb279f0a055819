/** Ask the worker. */

import type { Answer, Name, Questions } from "./messages";

/** Source of the worker's program, which the build inserts. */
declare const WORKER: string;

/** The page's end of the connection to the worker. */
export class Client {
  private readonly worker: Worker;
  private readonly waiting = new Map<number, { done: (answer: never) => void; failed: (error: Error) => void }>();
  private asked = 0;

  constructor() {
    const address = URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }));
    this.worker = new Worker(address);
    URL.revokeObjectURL(address);
    this.worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      const waiting = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if ("error" in data) waiting?.failed(new Error(data.error));
      else waiting?.done(data.answer as never);
    };
  }

  /** Ask a question; the answer comes when the worker has it. */
  ask<K extends Name>(name: K, ask: Questions[K]["ask"]): Promise<Questions[K]["answer"]> {
    const id = this.asked++;
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed });
      this.worker.postMessage({ id, name, ask });
    });
  }
}
