/** What the release counts, in the plural, such as trips. */
export let counted = "";

/** The same at the beginning of a sentence. */
export let Counted = "";

/** Speak of what a release counts from now on. */
export function speakOf(word: string): void {
  counted = word;
  Counted = word.charAt(0).toUpperCase() + word.slice(1);
}
