// What the server puts into the page as its module `words.js` (app/web/bundle.py).

/** For each outcome of a question: what it is called, and what that means. */
export const OUTCOMES: Record<string, [string, string]>;
export const WHO_CHOSE: Record<string, string>;
export const EARLIER_VERSION: string;
export const FROM_ITSELF: string;
export const FOR_WRITERS: string;
export const ONE_SENTENCE: string;
export const WRITER_SET_UP: string[];
export const QUOTED_INSTEAD: string;
export const SET_ASIDE: string;
/** Of the table of formats (retrieval/extraction/formats.py). */
export const DRAWN_KINDS: string[];
export const CELL_KINDS: string[];
export const KIND_OF_SUFFIX: Record<string, string>;
/** The mark of the product, as an address of its own content. */
export const MARK: string;
/** Addresses of the style sheets that the frame needs. */
export const FRAME_STYLES: string[];
