import type { AppDefinition } from "@w6w/types";
import { delivery } from "./triggers/delivery.ts";

export default {
  actions: [],
  triggers: [delivery],
} satisfies AppDefinition;
