(function () {
  "use strict";
  var steps = JSON.parse(document.getElementById("steps").textContent);
  var bar = document.getElementById("control");
  var slider = document.getElementById("tolerance");
  var root = document.documentElement;
  function each(selector, act) { Array.prototype.forEach.call(document.querySelectorAll(selector), act); }
  function show(index) {
    var step = steps[index];
    each("[data-slot]", function (node) {
      var text = step.text[node.getAttribute("data-slot")];
      if (text !== undefined && node.textContent !== text) { node.textContent = text; }
    });
    each("[data-place]", function (node) {
      var place = step.place[node.getAttribute("data-place")];
      node.hidden = !place;
      if (place) {
        node.style.setProperty("--lower", place[0]);
        node.style.setProperty("--value", place[1]);
        node.style.setProperty("--upper", place[2]);
      }
    });
    each("[data-block]", function (node) { node.hidden = Number(node.getAttribute("data-block")) !== index; });
    each("[data-step]", function (node) {
      node.classList.toggle("chosen", Number(node.getAttribute("data-step")) === index);
    });
    root.setAttribute("data-outcome", step.outcome);
    slider.setAttribute("aria-valuetext", step.text.tolerance + " percentage points");
  }
  slider.addEventListener("input", function () { show(Number(slider.value)); });
  each("path[data-step]", function (node) {
    node.addEventListener("click", function () {
      slider.value = node.getAttribute("data-step");
      show(Number(slider.value));
    });
  });
  window.addEventListener("beforeprint", function () { each("details:not(.receipt details)", function (node) { node.open = true; }); });
  bar.hidden = slider.type === "hidden";
  show(Number(slider.value));
})();
