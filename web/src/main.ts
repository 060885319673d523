import "./styles/index.css"
import "./app"
