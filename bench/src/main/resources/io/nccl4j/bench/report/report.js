// The value nearest to the pointer, in a box beside it.
const tip = document.getElementById('tip');
document.querySelectorAll('figure svg').forEach(chart => {
  const points = [...chart.querySelectorAll('[data-tip]')];
  chart.addEventListener('pointermove', event => {
    let best = null, distance = 40 * 40;
    for (const point of points) {
      const box = point.getBoundingClientRect();
      const x = box.x + box.width / 2 - event.clientX, y = box.y + box.height / 2 - event.clientY;
      if (x * x + y * y < distance) { distance = x * x + y * y; best = point; }
    }
    tip.style.display = best ? 'block' : 'none';
    if (best) {
      tip.textContent = best.dataset.tip;
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6)) + 'px';
      tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + 'px';
    }
  });
  chart.addEventListener('pointerleave', () => { tip.style.display = 'none'; });
});
