import { createApp } from "vue"
import RunPage from "./RunPage.vue"

createApp(RunPage).mount("#app")
