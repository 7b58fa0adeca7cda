// Switchyard: theme, keyboard, live tick, ages that count on. No inline handlers, no eval. Pages work without it.
(() => {
  "use strict";
  const TICK = 3000;
  const root = document.documentElement;
  const $ = (s, r = document) => r.querySelector(s), $$ = (s, r = document) => [...r.querySelectorAll(s)];

  // Controls that only work with JavaScript are hidden in the markup and shown here.
  const reveal = r => $$("[data-theme-toggle][hidden],[data-open][hidden],[data-close][hidden],[data-copy][hidden],[data-tick-all][hidden],[data-zone][hidden]", r)
    .forEach(b => { b.hidden = false; });

  // Theme: the server writes data-theme from the cookie, so there is no flash.
  function flip() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme};path=/;max-age=31536000;samesite=lax`;
    root.dispatchEvent(new CustomEvent("theme"));
  }

  // Time zone: the server says all times in the zone of the cookie, UTC without one. The page is read anew.
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  function changeZone(button) {
    const local = button.dataset.zone === "UTC" && here !== "UTC";
    document.cookie = local ? `zone=${here};path=/;max-age=31536000;samesite=lax` : "zone=;path=/;max-age=0;samesite=lax";
    location.reload();
  }

  document.addEventListener("click", e => {
    if (e.target.closest("[data-theme-toggle]")) flip();
    const zone = e.target.closest("[data-zone]");
    if (zone) changeZone(zone);
    const open = e.target.closest("[data-open]");
    if (open) document.getElementById(open.dataset.open)?.showModal();
    const close = e.target.closest("[data-close]");
    if (close) { const d = close.closest("details"); if (d) { d.open = false; $("summary", d).focus(); } }
    const copy = e.target.closest("[data-copy]");
    if (copy) navigator.clipboard?.writeText(copy.dataset.copy).then(() => say("Copied"));
    $$("details.confirm[open],details.menu[open]").forEach(d => { if (!d.contains(e.target)) d.open = false; });
  });

  // Ticks of a list: all of the page at once, and how many there are.
  document.addEventListener("change", e => {
    const boxes = () => $$("input[name=id][form=bulk]"), out = $("[data-ticked]");
    if (e.target.matches("[data-tick-all]")) boxes().forEach(b => { b.checked = e.target.checked; });
    if (out) { const n = boxes().filter(b => b.checked).length; out.hidden = !n; out.textContent = ` (${n})`; }
  });

  // Selects marked so send their form at once; without JavaScript the form's button does.
  document.addEventListener("change", e => { if (e.target.matches("[data-submit]")) e.target.form.requestSubmit(); });

  // An empty field adds nothing to a shared address.
  document.addEventListener("submit", e => {
    if (e.target.method !== "get") return;
    [...e.target.elements].forEach(f => { if (f.name && !f.value) f.disabled = true; });
    setTimeout(() => [...e.target.elements].forEach(f => { f.disabled = false; }), 500);
  });

  function say(text) {
    const p = document.createElement("p");
    p.className = "toast"; p.textContent = text;
    $("#toasts")?.append(p);
    setTimeout(() => p.remove(), 4000);
  }

  // Keyboard: "/" search, "?" help, g then a letter goes there, j and k move, Enter opens, x selects, p pauses.
  let g = 0;
  document.addEventListener("keydown", e => {
    if (e.key === "Escape") $$("details.confirm[open],details.menu[open]").forEach(d => { d.open = false; $("summary", d).focus(); });
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    if ($("dialog[open]")) return;
    if (e.key === "/") { e.preventDefault(); const s = $(".search input"); if (s?.offsetParent) s.focus(); else $("#q,#id_q")?.focus(); return; }
    if (e.key === "?") { e.preventDefault(); $("#shortcuts")?.showModal(); return; }
    if (e.key === "g") { g = Date.now(); return; }
    if (Date.now() - g < 900) {
      g = 0;
      const a = /^[a-z]$/.test(e.key) && $(`[data-go="${e.key}"]`);
      if (a) { e.preventDefault(); a.click(); return; }
    }
    if (e.key === "p" && live) { setPaused(!paused); return; }
    const rows = $$("[data-row]"), at = rows.indexOf(document.activeElement?.closest("[data-row]"));
    if (e.key === "j" || e.key === "k") { rows[Math.max(0, Math.min(rows.length - 1, at + (e.key === "j" ? 1 : -1)))]?.focus(); return; }
    if (at >= 0 && document.activeElement === rows[at]) {
      if (e.key === "x") $("input[type=checkbox]", rows[at])?.click();
      if (e.key === "Enter") $("a[href]", rows[at])?.click();
    }
  });

  // Live: one tick for all regions, only while somebody looks and nobody is filling in a form inside a region.
  const live = $("[data-live]"), text = $("[data-live-text]");
  let paused = sessionStorage.getItem("paused") === "1", last = Date.now(), failed = false;
  const regions = () => $$('[hx-trigger*="tick"]');
  const busy = () => regions().some(r => $("details.confirm[open],details.menu[open],dialog[open],input[name=id]:checked", r)
    || (r.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName))
    || (getSelection().type === "Range" && r.contains(getSelection().anchorNode)));
  function setPaused(on) {
    paused = on;
    sessionStorage.setItem("paused", on ? "1" : "");
    if (!on) tick();
    show();
  }
  function tick() { if (!busy()) document.body.dispatchEvent(new CustomEvent("tick")); }
  function show() {
    if (!live) return;
    const age = Math.max(0, Math.round((Date.now() - last) / 1000));
    live.classList.toggle("is-paused", paused);
    live.classList.toggle("is-off", failed && !paused);
    live.setAttribute("aria-pressed", String(!paused));
    text.textContent = paused ? "Paused" : failed ? `No answer, ${span(age)}` : age < 2 ? "Live" : `Live, ${span(age)} ago`;
  }
  document.addEventListener("htmx:after:request", e => {
    const r = e.detail?.ctx?.response;
    if (!r || !e.target.matches?.('[hx-trigger*="tick"]')) return;
    const status = r.status ?? r.raw?.status;
    failed = !(status < 400);
    if (!failed) last = Date.now();
    show();
  });
  document.addEventListener("htmx:error", () => { failed = true; show(); });
  // An error page must not take the place of what is shown.
  document.addEventListener("htmx:before:swap", e => {
    const r = e.detail?.ctx?.response, status = r?.status ?? r?.raw?.status;
    if (status >= 400 && e.target.matches?.('[hx-trigger*="tick"]')) e.preventDefault();
  });
  document.addEventListener("htmx:after:swap", () => { reveal(document); ages(); });

  // Ages and countdowns go on between two answers. The same words as core.durations.format_duration.
  function span(s) {
    if (s < 0) return "−" + span(-s);
    const parts = []; let left = Math.round(s);
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
      if (left >= size) { parts.push(`${Math.floor(left / size)} ${unit}`); left %= size; }
    }
    return parts.slice(0, 2).join(" ").replaceAll(" ", "\u00a0") || "0\u00a0s";
  }
  // Server minus browser: a browser clock that is off by more than load time can explain is corrected.
  const stamp = Date.parse(document.body.dataset.now || ""), off = stamp ? stamp - Date.now() : 0;
  const skew = Math.abs(off) > 5000 ? off : 0;
  function ages() {
    const now = Date.now() + skew;
    $$("time[data-age]").forEach(t => {
      const s = (now - Date.parse(t.dateTime)) / 1000;
      const words = t.dataset.age === "since" ? span(Math.max(0, s)) : span(-s);
      if (t.textContent !== words) t.textContent = words;
    });
  }

  reveal(document);
  if (live && regions().length) {
    live.hidden = false;
    live.addEventListener("click", () => setPaused(!paused));
    setInterval(() => { if (!paused && document.visibilityState === "visible") tick(); }, TICK);
    document.addEventListener("visibilitychange", () => { if (!paused && document.visibilityState === "visible") tick(); });
  }
  show(); ages();
  // On a phone the row of tabs is longer than the screen: show where we are.
  const tab = $(".tabs [aria-current]");
  if (tab?.offsetParent) tab.parentElement.scrollLeft = tab.offsetLeft - (tab.parentElement.clientWidth - tab.offsetWidth) / 2;
  setInterval(() => { if (document.visibilityState === "visible") { show(); ages(); } }, 1000);
})();
