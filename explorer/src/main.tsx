import { render } from 'preact';
import { App } from './app';
import './style.css';

const app = document.getElementById('app')!;
app.replaceChildren();
render(<App />, app);
