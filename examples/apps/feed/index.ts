import type { AppDefinition } from "@w6w/types";
import { item } from "./triggers/item.ts";

export default {
  actions: [],
  triggers: [item],
} satisfies AppDefinition;
